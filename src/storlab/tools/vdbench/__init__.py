"""What vdbench leaves: ``flatfile.html``, and ``summary.html`` or ``totals.html``."""
