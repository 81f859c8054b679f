"""What the laboratory shows: comparisons, what `vernier doctor` prints, and progress while it measures.

The sections of the HTML report are in `lab.page`; live output of training runs and the report itself are the core's
(`vernier.report`).
"""
