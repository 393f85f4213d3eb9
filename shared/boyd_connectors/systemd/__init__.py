"""The plugin `systemd`: units and the journal of every host."""
