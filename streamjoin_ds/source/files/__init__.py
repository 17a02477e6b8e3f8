"""Files as feeds: listing, text and lines, the three formats, the look ahead, the watch over what was read."""
