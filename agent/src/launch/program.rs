//! Which file a program's name means. Source: `execvp(3)`, except that a file that is neither a binary nor begins
//! with `#!` isn't given to a shell, and that a directory without permission to search holds nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

/// Where programs are looked for if the environment doesn't say: an agent that a VM's init started may have none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file that `name` means under this search path.
pub fn find_program(name: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Errno> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut error = Errno::ENOENT;
    for directory in std::env::split_paths(search_path.unwrap_or(DEFAULT_PATH.as_ref())) {
        // An empty entry means the working directory, as for a shell.
        let file = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory }.join(name);
        match access(&file, AccessFlags::X_OK) {
            Ok(()) if file.is_file() => return Ok(file),
            // A file that is there but can't be executed is the better explanation, unless another is found. A
            // directory that may not be searched is none: execvp takes it for one.
            _ if file.exists() => error = Errno::EACCES,
            _ => {}
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_the_given_path_only() {
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere:/bin".as_ref())), Ok("/bin/sh".into()));
        assert_eq!(find_program("sh".as_ref(), Some("/nowhere".as_ref())), Err(Errno::ENOENT));
        assert!(find_program("sh".as_ref(), None).is_ok());
    }

    #[test]
    fn a_file_without_permission_to_execute_is_told_from_none() {
        assert_eq!(find_program("passwd".as_ref(), Some("/etc".as_ref())), Err(Errno::EACCES));
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_for() {
        assert_eq!(find_program("./x".as_ref(), None), Ok("./x".into()));
        assert_eq!(find_program("".as_ref(), None), Err(Errno::ENOENT));
    }
}
