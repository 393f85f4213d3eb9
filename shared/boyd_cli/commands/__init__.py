"""The commands of `boyd`, imported when used."""
