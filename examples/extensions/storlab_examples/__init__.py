"""Extensions of Storlab: one layer, one workload, one probe."""
