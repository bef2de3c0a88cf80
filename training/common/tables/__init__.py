"""Tables with a header: comma, semicolon, tab or bar between fields, in any encoding, compressed or not."""
