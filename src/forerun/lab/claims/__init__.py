"""Claims: figures in texts, and the results files that they are held against."""
