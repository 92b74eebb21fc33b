"""After `storlab run`: exit status 1 where a verdict is worse, with its reason. `python gate.py RUN`."""

import json
import sys
from pathlib import Path

summary = json.loads((Path(sys.argv[1]) / "summary.json").read_text())
worse = [comparison for comparison in summary["comparisons"] if comparison["verdict"] == "worse"]
for comparison in summary["comparisons"]:
    print(f"{comparison['verdict']}: {comparison['reason']}")
sys.exit(1 if worse else 0)
