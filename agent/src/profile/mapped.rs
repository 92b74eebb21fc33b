//! Which file an address of a process is in: `/proc/PID/maps`, proc_pid_maps(5).

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

const MOST: usize = 1024;
/// Maps are read again no sooner. Programs without frame pointers have many addresses in their stacks that are none.
const AGAIN: Duration = Duration::from_millis(500);

/// A file as a process has it in its memory. The numbers tell whether a file of this path is that file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct File {
    /// Its path, or what the kernel calls memory that is no file's: `[vdso]`, `[stack]`; empty: memory without a name.
    pub path: String,
    /// Its inode; 0: no file.
    pub inode: u64,
}

#[derive(Debug, Clone)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    file: usize,
}

#[derive(Debug)]
struct Read {
    at: Instant,
    maps: Vec<Mapping>,
}

/// The maps of processes, each read when something of it is asked.
#[derive(Debug, Default)]
pub struct Maps {
    /// With the command's name: a process that has become another program has other maps.
    known: HashMap<(u32, [u8; 16]), Read>,
    files: Files,
}

#[derive(Debug, Default)]
struct Files {
    all: Vec<File>,
    places: HashMap<File, usize>,
}

impl Maps {
    /// The file at an address of a process, and where in it that is; `None` where nothing is there any more.
    pub fn at(&mut self, process: u32, comm: [u8; 16], address: u64) -> Option<(usize, u64)> {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let key = (process, comm);
        let read = self.known.get(&key);
        let found = read.and_then(|read| find(&read.maps, address));
        if found.is_some() || read.is_some_and(|read| read.at.elapsed() < AGAIN) {
            return found;
        }
        // It is new, or has mapped more since. One that has ended has no maps: what is known of it stays.
        let text = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        if text.is_empty() && read.is_some() {
            return None;
        }
        let maps = self.files.parse(&String::from_utf8_lossy(&text));
        let found = find(&maps, address);
        self.known.insert(key, Read { at: Instant::now(), maps });
        found
    }

    pub fn file(&self, place: usize) -> &File {
        &self.files.all[place]
    }
}

fn find(maps: &[Mapping], address: u64) -> Option<(usize, u64)> {
    let place = maps.partition_point(|mapping| mapping.start <= address).checked_sub(1)?;
    let mapping = maps.get(place).filter(|mapping| address < mapping.end)?;
    Some((mapping.file, (address - mapping.start).checked_add(mapping.offset)?))
}

impl Files {
    /// What can be executed of a process's maps; the kernel writes them in order.
    fn parse(&mut self, text: &str) -> Vec<Mapping> {
        text.lines().filter_map(|line| self.mapping(line)).collect()
    }

    fn place(&mut self, file: File) -> usize {
        if let Some(place) = self.places.get(&file) {
            return *place;
        }
        self.all.push(file.clone());
        self.places.insert(file, self.all.len() - 1);
        self.all.len() - 1
    }

    fn mapping(&mut self, line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let flags = words.next()?;
        let offset = words.next()?;
        let inode = words.nth(1)?;
        let path = words.next().unwrap_or_default().trim_start();
        flags.contains('x').then_some(())?;
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset: u64::from_str_radix(offset, 16).ok()?,
            file: self.place(File { path: path.into(), inode: inode.parse().ok()? }),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const MAPS: &str = "\
00400000-00401000 r--p 00000000 08:01 12 /usr/bin/fio
00401000-00405000 r-xp 00001000 08:01 12 /usr/bin/fio
7f0000000000-7f0000001000 r-xp 00002000 08:01 13                 /usr/lib/a name (deleted)
7f0000002000-7f0000003000 rwxp 00000000 00:00 0 
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                  [vdso]
";

    #[test]
    fn an_address_is_in_a_file_at_an_offset() {
        let mut files = Files::default();
        let maps = files.parse(MAPS);
        let at = |address| {
            find(&maps, address).map(|(file, offset)| {
                let File { path, inode } = files.all[file].clone();
                (path, inode, offset)
            })
        };
        assert_eq!(at(0x0040_1234), Some(("/usr/bin/fio".into(), 12, 0x1234)));
        assert_eq!(at(0x7f00_0000_0010), Some(("/usr/lib/a name (deleted)".into(), 13, 0x2010)));
        assert_eq!(at(0x7f00_0000_2000), Some((String::new(), 0, 0)));
        assert_eq!(at(0x7ffd_0000_0001), Some(("[vdso]".into(), 0, 1)));
        assert_eq!(at(0x0040_0000), None, "nothing is executed there");
        assert_eq!(at(0), None);
    }

    #[test]
    fn what_is_known_of_a_process_stays_when_it_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = child.id();
        let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let address = Files::default().parse(&text)[0].start;
        let mut maps = Maps::default();
        let found = maps.at(process, [0; 16], address);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.is_some());
        std::thread::sleep(AGAIN);
        assert_eq!(maps.at(process, [0; 16], 0), None);
        assert_eq!(maps.at(process, [0; 16], address), found);
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        assert!(Files::default().parse("x\n1-2\n\n1-2 r-xp 0 0:0 x y\n").is_empty());
    }
}
