"""How long memory lasts and how it ends. The models arrive with the first ending that needs one."""
