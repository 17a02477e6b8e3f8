"""What lies in a checkpoint: whose it is, who drives it, what a restart finds there, and how it is mended."""
