"""Tasks that give each input one label or several: their base, and a linear classifier beside the network."""
