"""Files of millions of rows: every row's answer beside its columns, in parts that several processes predict."""
