"""Hot partitions and hot keys: what makes one partition carry more traffic than its share."""
