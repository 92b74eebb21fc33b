//! Which tools the node has, and which versions they print.

use std::collections::{BTreeMap, VecDeque};

use super::system;
use crate::clock::SECOND;
use crate::launch::find_program;
use crate::protocol::{Facts, Output, Run, StdinKind, Survivors, Tool};

/// How long a tool may take to print its version.
const TIMEOUT_NS: u64 = 5 * SECOND;
/// How many run at once: a hundred tools must not be a hundred processes.
const PARALLEL: usize = 16;
/// A version's line is no longer than this, in bytes.
const LINE: usize = 256;

/// One `facts` request, until all its tools have answered.
#[derive(Debug)]
pub struct FactsRequest {
    waiting: VecDeque<(String, Vec<String>)>,
    running: usize,
    tools: BTreeMap<String, Option<Tool>>,
}

impl FactsRequest {
    /// Looks for the tools; those that are there are to be run, where their argv says with what.
    pub fn new(tools: BTreeMap<String, Vec<String>>) -> Self {
        let search_path = std::env::var_os("PATH");
        let mut request = Self { waiting: VecDeque::new(), running: 0, tools: BTreeMap::new() };
        for (name, argv) in tools {
            let found =
                argv.first().and_then(|program| find_program(program.as_ref(), search_path.as_deref()).ok());
            let tool = found
                .filter(|path| path.exists())
                .map(|path| Tool { path: path.to_string_lossy().into_owned(), version: None });
            if tool.is_some() && argv.len() > 1 {
                request.waiting.push_back((name.clone(), argv));
            }
            request.tools.insert(name, tool);
        }
        request
    }

    /// A tool to run now, with its name.
    pub fn next_tool(&mut self) -> Option<(String, Run)> {
        if self.running == PARALLEL {
            return None;
        }
        let (name, argv) = self.waiting.pop_front()?;
        self.running += 1;
        let run = Run {
            argv,
            env: BTreeMap::new(),
            cwd: None,
            stdin: StdinKind::None,
            stdout: Output::Stream,
            stderr: Output::Stream,
            timeout_ns: Some(TIMEOUT_NS),
            grace_ns: 0,
            start_at_ns: None,
            name: None,
            confine: None,
            most_output: None,
            survivors: Survivors::Kill,
            count: false,
        };
        Some((name, run))
    }

    /// A tool is over, having printed this to its standard output and error.
    pub fn tool_done(&mut self, name: &str, printed: &[Vec<u8>; 2]) {
        self.running -= 1;
        if let Some(Some(tool)) = self.tools.get_mut(name) {
            // Some print it as an error.
            tool.version = printed.iter().find_map(|text| first_line(text));
        }
    }

    pub fn is_complete(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    pub fn into_facts(self) -> Facts {
        Facts { tools: self.tools, ..system::gather() }
    }
}

/// The first line that isn't blank.
pub fn first_line(printed: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line[..line.floor_char_boundary(LINE)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_line_that_is_not_blank() {
        assert_eq!(first_line(b"\n  fio-3.33 \nmore\n").as_deref(), Some("fio-3.33"));
        assert_eq!(first_line(b"\n \n"), None);
    }

    #[test]
    fn a_line_without_end_is_cut_between_two_characters() {
        let line = first_line("é".repeat(1000).as_bytes()).unwrap();
        assert_eq!(line.len(), LINE);
    }

    #[test]
    fn a_tool_that_is_not_there_is_not_run() {
        let tools = BTreeMap::from([("x".to_owned(), vec!["no-such-program".to_owned()])]);
        let request = FactsRequest::new(tools);
        assert!(request.is_complete());
        assert_eq!(request.into_facts().tools["x"], None);
    }
}
