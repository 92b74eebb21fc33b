//! What the launcher tells a guest's init: parameters `storlab.*` on the kernel's command line.

/// The virtio-serial port, where the command line names none.
const DEFAULT_PORT: &str = "storlab.agent";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// How many read-only layers make up the root file system.
    pub layers: usize,
    /// The serial number of the disk that holds it instead, to be written to.
    pub root: Option<String>,
    /// Name of the virtio-serial port to the controller.
    pub port: String,
    pub name: Option<String>,
    pub try_only: bool,
}

/// A parameter that can't be obeyed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CmdlineError {
    #[error("storlab.layers={0} on the kernel's command line is no number from 1 to 100")]
    Layers(String),
    /// Without layers there is no root file system.
    #[error("storlab.layers=N, or storlab.root=SERIAL, is missing on the kernel's command line")]
    NoLayers,
}

impl Parameters {
    /// Reads them from `/proc/cmdline`. Where a parameter is given twice, the last one counts, as for the kernel;
    /// what isn't Storlab's is the kernel's affair.
    pub fn parse(cmdline: &str) -> Result<Self, CmdlineError> {
        let value = |name: &str| {
            let own = cmdline.split_ascii_whitespace().filter_map(|word| word.strip_prefix("storlab."));
            own.filter_map(|word| word.split_once('=')).rfind(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let try_only = value("try") == Some("1");
        let root = value("root").map(Into::into);
        let layers = match value("layers") {
            Some(text) => {
                let count = text.parse().ok().filter(|count| (1..=100).contains(count));
                count.ok_or_else(|| CmdlineError::Layers(text.into()))?
            }
            None if try_only || root.is_some() => 0,
            None => return Err(CmdlineError::NoLayers),
        };
        let port = value("port").unwrap_or(DEFAULT_PORT).into();
        Ok(Self { layers, root, port, name: value("name").map(Into::into), try_only })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn storlabs_parameters_are_found_among_the_kernels() {
        let cmdline = "console=ttyS0 quiet storlab.layers=2 storlab.port=p.0 storlab.name=node-1 panic=-1\n";
        let expected = Parameters {
            layers: 2,
            root: None,
            port: "p.0".into(),
            name: Some("node-1".into()),
            try_only: false,
        };
        assert_eq!(Parameters::parse(cmdline), Ok(expected));
    }

    #[test]
    fn only_the_number_of_layers_or_a_disk_is_needed() {
        let expected =
            Parameters { layers: 1, root: None, port: "storlab.agent".into(), name: None, try_only: false };
        assert_eq!(Parameters::parse("storlab.layers=1"), Ok(expected.clone()));
        let on_disk = Parameters { layers: 0, root: Some("storlab-disk0".into()), ..expected };
        assert_eq!(Parameters::parse("storlab.root=storlab-disk0"), Ok(on_disk));
        assert_eq!(Parameters::parse("quiet storlab.layers"), Err(CmdlineError::NoLayers));
    }

    #[test]
    fn a_try_needs_no_layers() {
        assert!(Parameters::parse("storlab.try=1").is_ok_and(|parameters| parameters.try_only));
        assert!(
            Parameters::parse("storlab.try=0 storlab.layers=1").is_ok_and(|parameters| !parameters.try_only)
        );
    }

    #[test]
    fn the_last_of_two_counts() {
        let parameters = Parameters::parse("storlab.layers=1 storlab.layers=3");
        assert!(parameters.is_ok_and(|parameters| parameters.layers == 3));
    }

    #[test]
    fn an_impossible_number_of_layers_is_named() {
        for text in ["0", "-1", "two", "101", ""] {
            let cmdline = format!("storlab.layers={text}");
            assert_eq!(Parameters::parse(&cmdline), Err(CmdlineError::Layers(text.into())));
        }
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(cmdline in ".*") {
            let _ = Parameters::parse(&cmdline);
        }
    }
}
