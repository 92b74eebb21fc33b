"""The ground floor: what all others use, and what knows of none of them."""
