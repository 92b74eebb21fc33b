"""A run of a suite in its folder, and the results of many runs."""

from storlab.records.suite.folder import CONSOLES as CONSOLES
from storlab.records.suite.folder import ENVIRONMENT as ENVIRONMENT
from storlab.records.suite.folder import LOG as LOG
from storlab.records.suite.folder import OUTPUT as OUTPUT
from storlab.records.suite.folder import RESULTS as RESULTS
from storlab.records.suite.folder import SUITE as SUITE
from storlab.records.suite.folder import Results as Results
from storlab.records.suite.folder import SuiteRecord as SuiteRecord
from storlab.records.suite.folder import SuiteRun as SuiteRun
from storlab.records.suite.folder import drop_torn_line as drop_torn_line
from storlab.records.suite.folder import parse_results as parse_results
from storlab.records.suite.folder import read_results as read_results
from storlab.records.suite.folder import read_suite_record as read_suite_record
from storlab.records.suite.folder import read_suite_run as read_suite_run
from storlab.records.suite.folder import write_suite_record as write_suite_record
from storlab.records.suite.merged import merged_suite_runs as merged_suite_runs
