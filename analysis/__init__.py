"""One question a file: frames in, small frames out."""
