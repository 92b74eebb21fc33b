//! The functions of an executable or a library, by where they are in its file.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::mapped;

/// Bytes of a file that is looked into.
const MOST: u64 = 512 << 20;
const MOST_SYMBOLS: usize = 2_000_000;
/// Bytes of a name that are kept.
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub struct Functions {
    /// Offset in the file, size and address of what is loaded from there.
    segments: Vec<(u64, u64, u64)>,
    functions: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Those of a mapped file; none where it is not there any more, is another one by now, or has no symbols.
    pub fn of(file: &mapped::File) -> Self {
        let Ok(metadata) = fs::metadata(&file.path) else { return Self::default() };
        if !metadata.is_file() || metadata.len() > MOST || metadata.ino() != file.inode {
            return Self::default();
        }
        File::open(&file.path).ok().and_then(|open| Self::parse(&ReadCache::new(open))).unwrap_or_default()
    }

    fn parse<'a>(data: impl object::ReadRef<'a>) -> Option<Self> {
        let file = object::File::parse(data).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (offset, size, segment.address())
        });
        let mut functions: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.address() > 0)
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?;
                Some((symbol.address(), symbol.size(), name.chars().take(LONGEST).collect::<String>()))
            })
            .take(MOST_SYMBOLS)
            .collect();
        functions.sort_unstable();
        functions.dedup_by_key(|function| function.0);
        Some(Self { segments: segments.collect(), functions })
    }

    /// The function that lies at an offset of the file.
    pub fn at(&self, offset: u64) -> Option<&str> {
        let (start, _, address) =
            self.segments.iter().find(|(start, size, _)| offset >= *start && offset - start < *size)?;
        let address = address.checked_add(offset - start)?;
        let place = self.functions.partition_point(|function| function.0 <= address).checked_sub(1)?;
        let (begin, size, name) = &self.functions[place];
        // Those that were written by hand have no size.
        (*size == 0 || address - begin < *size).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn functions_of_this_program_are_found_where_they_are() {
        let path = env::current_exe().unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let mapped = mapped::File { path: path.to_str().unwrap().into(), inode };
        let functions = Functions::of(&mapped);
        let (address, _, name) =
            functions.functions.iter().find(|function| function.2 == "main").expect("it has its symbols");
        let (start, _, base) = functions
            .segments
            .iter()
            .find(|(_, size, base)| address >= base && address - base < *size)
            .expect("main is loaded");
        assert_eq!(functions.at(start + address - base), Some(name.as_str()));
        let other = mapped::File { inode: inode + 1, ..mapped };
        assert_eq!(Functions::of(&other).at(start + address - base), None);
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..400), offset: u64) {
            let elf = [&b"\x7fELF\x02\x01\x01"[..], &bytes].concat();
            if let Some(functions) = Functions::parse(elf.as_slice()) {
                let _ = functions.at(offset);
            }
        }
    }
}
