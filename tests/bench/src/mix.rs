//! Which resources there are.

use std::fmt;

use crate::kinds::Kind;

/// Resources of one or several kinds, numbered from 0. The kinds take turns, so each has its equal part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    kinds: Vec<Kind>,
    count: u32,
}

impl Mix {
    /// `count` resources of these kinds. A kind that would have none is left out.
    pub fn new(kinds: &[Kind], count: u32) -> Self {
        let mut distinct = Vec::with_capacity(kinds.len());
        for kind in kinds {
            if !distinct.contains(kind) {
                distinct.push(*kind);
            }
        }
        distinct.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Self { kinds: distinct, count }
    }

    /// How many resources there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The kinds, each once.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Kind and number of every resource.
    pub fn members(&self) -> impl DoubleEndedIterator<Item = (Kind, u32)> {
        (0..self.count).filter_map(|number| Some((*self.kinds.get(number as usize % self.kinds.len())?, number)))
    }

    /// Numbers of the resources of one kind.
    pub fn of(&self, kind: Kind) -> impl DoubleEndedIterator<Item = u32> {
        self.members().filter(move |(it, _)| *it == kind).map(|(_, number)| number)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.kinds.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{} {kind}", self.of(*kind).count())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&Kind::ALL, 1000, "334 LMCacheEngine, 333 CacheBlendEngine, 333 LMCacheCoordinator")]
    #[case(&Kind::ALL, 30, "10 LMCacheEngine, 10 CacheBlendEngine, 10 LMCacheCoordinator")]
    #[case(&Kind::ALL, 2, "1 LMCacheEngine, 1 CacheBlendEngine")]
    #[case(&[Kind::Coordinator], 7, "7 LMCacheCoordinator")]
    #[case(&[Kind::Engine, Kind::Engine], 4, "4 LMCacheEngine")]
    fn every_kind_has_its_equal_part(#[case] kinds: &[Kind], #[case] count: u32, #[case] expected: &str) {
        assert_eq!(Mix::new(kinds, count).to_string(), expected);
    }

    #[test]
    fn the_kinds_take_turns() {
        let mix = Mix::new(&[Kind::Engine, Kind::Coordinator], 3);
        let expected = [(Kind::Engine, 0), (Kind::Coordinator, 1), (Kind::Engine, 2)];
        assert_eq!(mix.members().collect::<Vec<_>>(), expected);
        assert_eq!(mix.of(Kind::Engine).collect::<Vec<_>>(), [0, 2]);
    }
}
