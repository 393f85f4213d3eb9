"""Goals: the plugin, its commands and its pages of the console."""
