"""What parties that Storlab does not trust may try: each test is an attack, by party."""
