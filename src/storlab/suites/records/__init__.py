"""A run of a suite in its folder, and the results of many runs."""

from storlab.suites.records.folder import CONSOLES as CONSOLES
from storlab.suites.records.folder import ENVIRONMENT as ENVIRONMENT
from storlab.suites.records.folder import LOG as LOG
from storlab.suites.records.folder import OUTPUT as OUTPUT
from storlab.suites.records.folder import RESULTS as RESULTS
from storlab.suites.records.folder import SUITE as SUITE
from storlab.suites.records.folder import Results as Results
from storlab.suites.records.folder import SuiteRecord as SuiteRecord
from storlab.suites.records.folder import SuiteRun as SuiteRun
from storlab.suites.records.folder import drop_torn_line as drop_torn_line
from storlab.suites.records.folder import parse_results as parse_results
from storlab.suites.records.folder import read_results as read_results
from storlab.suites.records.folder import read_suite_record as read_suite_record
from storlab.suites.records.folder import read_suite_run as read_suite_run
from storlab.suites.records.folder import write_suite_record as write_suite_record
from storlab.suites.records.merged import merged_suite_runs as merged_suite_runs
