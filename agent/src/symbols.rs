//! The kernel's functions by address, from `/proc/kallsyms`, those of modules included.
//!
//! The file has the beginnings of symbols and no sizes. A symbol reaches up to the next one; the last one of the kernel,
//! of a module, or of all, reaches to the end of the page after it, as `perf` has it (`symbols__fixup_end` in
//! tools/perf/util/symbol.c of Linux 6.18).

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

const KALLSYMS: &str = "/proc/kallsyms";
const MODULES: &str = "/proc/modules";
const PAGE: u64 = 4096;
/// Before a function, for those that are patched or checked: nothing ever runs there.
const PADDING: [&str; 2] = ["__pfx_", "__cfi_"];

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum NoSymbols {
    /// The kernel hides them, or was built without.
    #[error(
        "the kernel shows no addresses of its functions in {KALLSYMS}: they are for root, and kernel.kptr_restrict must not be 2"
    )]
    Hidden,
    /// Anything else.
    #[error("cannot read {KALLSYMS}: {0}")]
    System(#[from] io::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// As its source has it: without what compilers append, as `.isra.0`, `.part.0`, `.constprop.0` or `.cold`.
    pub name: &'a str,
    /// The module that it is in; `None` for the kernel's own.
    pub module: Option<&'a str>,
    /// Its first address.
    pub start: u64,
    /// The first one after it.
    pub end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    name: u32,
    length: u16,
    module: u16, // 0: none; else its place + 1
    rank: u8,
}

/// All functions of the running kernel.
#[derive(Debug, Default)]
pub struct Symbols {
    entries: Vec<Entry>,
    names: String,
    modules: Vec<String>,
    /// What `/proc/modules` had when they were read.
    loaded: String,
}

impl Symbols {
    /// Those of this kernel.
    pub fn of_kernel() -> Result<Self, NoSymbols> {
        let loaded = loaded_modules();
        let symbols = Self::parse(BufReader::with_capacity(64 << 10, File::open(KALLSYMS)?))?;
        if symbols.entries.is_empty() { Err(NoSymbols::Hidden) } else { Ok(Self { loaded, ..symbols }) }
    }

    /// Reads them again if a module came or went since.
    pub fn refresh(&mut self) -> Result<(), NoSymbols> {
        if self.loaded != loaded_modules() {
            *self = Self::of_kernel()?;
        }
        Ok(())
    }

    /// From lines such as `ffffffffc0a1b000 t zio_execute\t[zfs]`. What is no function is left out, and so is what has
    /// no address, as all that a kernel hides.
    pub fn parse(text: impl BufRead) -> io::Result<Self> {
        let mut symbols = Self::default();
        for line in text.lines() {
            symbols.add(&line?);
        }
        let names = &symbols.names;
        // Of several of one address, that which is shown comes last, where a search for the address ends.
        symbols.entries.sort_by_key(|entry| (entry.address, entry.rank, Reverse(name_of(names, entry))));
        Ok(symbols)
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let Ok(address @ 1..) = u64::from_str_radix(address, 16) else { return };
        if !matches!(kind, "t" | "T" | "w" | "W") || PADDING.iter().any(|padding| name.starts_with(padding)) {
            return;
        }
        let (Ok(start), Ok(length)) = (self.names.len().try_into(), name.len().try_into()) else { return };
        let module = words.next().map(|word| word.trim_matches(['[', ']']));
        let Ok(module) = u16::try_from(module.map_or(0, |module| self.place_of(module))) else { return };
        self.names.push_str(name);
        self.entries.push(Entry { address, name: start, length, module, rank: rank(kind, name) });
    }

    /// The symbols of a module follow each other.
    fn place_of(&mut self, module: &str) -> usize {
        if self.modules.last().is_none_or(|last| last != module) {
            self.modules.push(module.to_owned());
        }
        self.modules.len()
    }

    /// The function that an address lies in. Of a return address this is the one that follows the call: look up the
    /// address before it, as a call may be its function's last instruction.
    pub fn at(&self, address: u64) -> Option<Symbol<'_>> {
        let place = self.entries.partition_point(|entry| entry.address <= address).checked_sub(1)?;
        let symbol = self.symbol(place);
        (address < symbol.end).then_some(symbol)
    }

    /// All of them, by address; several may have the same.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        (0..self.entries.len()).map(|place| self.symbol(place))
    }

    fn symbol(&self, place: usize) -> Symbol<'_> {
        let entry = &self.entries[place];
        let next = self.entries[place..].iter().find(|next| next.address > entry.address);
        let next = next.filter(|next| next.module == entry.module);
        let last = (entry.address / PAGE).saturating_add(2).saturating_mul(PAGE);
        let name = name_of(&self.names, entry);
        Symbol {
            name: name.split('.').next().filter(|plain| !plain.is_empty()).unwrap_or(name),
            module: usize::from(entry.module).checked_sub(1).map(|at| self.modules[at].as_str()),
            start: entry.address,
            end: next.map_or(last, |next| next.address),
        }
    }
}

fn name_of<'a>(names: &'a str, entry: &Entry) -> &'a str {
    let start = entry.name as usize;
    &names[start..start + usize::from(entry.length)]
}

/// Which of several names of one address is shown: a global one before a local one before a weak one, and of these one
/// without underscores before it.
fn rank(kind: &str, name: &str) -> u8 {
    let scope = match kind {
        "T" => 2,
        "t" => 1,
        _ => 0,
    };
    scope * 2 + u8::from(!name.starts_with('_'))
}

/// Empty where nothing can be loaded.
fn loaded_modules() -> String {
    fs::read_to_string(MODULES).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t __pfx_zeta
ffffffff81000110 t zeta.isra.0
ffffffff81000200 W weak
ffffffff81000200 T __strong
ffffffff81000200 t strong_local
ffffffff81000300 D datum
ffffffffc0002000 t zio_execute\t[zfs]
ffffffffc0002100 t zio_done.cold\t[zfs]
ffffffffc0001000 t mutex_tsd\t[spl]
";

    fn symbols() -> Symbols {
        Symbols::parse(TEXT.as_bytes()).unwrap()
    }

    fn name_at(address: u64) -> Option<String> {
        symbols().at(address).map(|symbol| match symbol.module {
            Some(module) => format!("{} [{module}]", symbol.name),
            None => symbol.name.to_owned(),
        })
    }

    #[test]
    fn an_address_lies_in_the_function_that_begins_before_it() {
        assert_eq!(name_at(0xffff_ffff_8100_0110).as_deref(), Some("zeta"));
        assert_eq!(name_at(0xffff_ffff_8100_01ff).as_deref(), Some("zeta"));
        assert_eq!(name_at(0xffff_ffff_c000_20ff).as_deref(), Some("zio_execute [zfs]"));
        assert_eq!(name_at(0xffff_ffff_c000_1001).as_deref(), Some("mutex_tsd [spl]"));
        assert_eq!(name_at(0xffff_ffff_80ff_ffff), None);
        assert_eq!(name_at(0), None);
    }

    #[test]
    fn what_compilers_append_and_what_lies_before_a_function_is_no_name() {
        assert_eq!(name_at(0xffff_ffff_c000_2100).as_deref(), Some("zio_done [zfs]"));
        assert_eq!(name_at(0xffff_ffff_8100_0108).as_deref(), Some("_stext"));
    }

    #[test]
    fn a_global_name_goes_before_a_local_or_weak_one() {
        assert_eq!(name_at(0xffff_ffff_8100_0200).as_deref(), Some("__strong"));
        assert!(symbols().iter().any(|symbol| symbol.name == "strong_local"));
    }

    #[test]
    fn the_last_function_of_a_module_ends_after_a_page() {
        assert_eq!(name_at(0xffff_ffff_c000_3fff).as_deref(), Some("zio_done [zfs]"));
        assert_eq!(name_at(0xffff_ffff_c000_4000), None);
        assert_eq!(name_at(0xffff_ffff_8100_2000), None);
        assert_eq!(name_at(u64::MAX), None);
    }

    #[test]
    fn addresses_that_the_kernel_hides_are_no_symbols() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t zio_execute\t[zfs]\n";
        assert!(Symbols::parse(hidden.as_bytes()).unwrap().entries.is_empty());
    }

    #[test]
    fn this_kernels_own_functions_are_found() {
        let symbols = match Symbols::of_kernel() {
            Err(NoSymbols::Hidden) => return eprintln!("skipped: only root is shown addresses"),
            other => other.unwrap(),
        };
        let schedule = symbols.iter().find(|symbol| symbol.name == "schedule").unwrap();
        assert_eq!(symbols.at(schedule.end - 1).unwrap().name, "schedule");
    }

    proptest! {
        #[test]
        fn whatever_the_text_every_address_has_one_function_or_none(
            text in "([0-9a-f]{0,17} ?[tTwWdA]? [a-z_.]{0,9}(\t\\[[a-z]{0,3}\\])?\n){0,12}",
            address: u64,
        ) {
            let symbols = Symbols::parse(text.as_bytes()).unwrap();
            if let Some(found) = symbols.at(address) {
                prop_assert!(found.start <= address && address < found.end);
            }
            prop_assert!(symbols.iter().all(|one| symbols.at(one.start).is_some_and(|at| at.start == one.start)));
        }
    }
}
