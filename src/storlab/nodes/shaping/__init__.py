"""The network among nodes as a study shapes it: what it asks for, how that is applied, what was really got."""
