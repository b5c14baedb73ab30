//! Short texts that are kept together: one piece of memory for all of them.
//!
//! A cache holds thousands of objects with a dozen of them each. As allocations of their own they would lie scattered
//! among what a burst needed for a moment, and keep its pages from being given back.

/// Texts in the order they were given.
#[derive(Debug)]
pub(crate) struct Words {
    /// How many there are, where each one ends, and then all of them.
    bytes: Box<[u8]>,
}

/// The size of a number in front of the texts.
const NUMBER: usize = size_of::<u32>();

impl Words {
    /// Keeps these. They are parts of one object, which is far smaller than 4 GB.
    pub(crate) fn new<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Self {
        let (count, length) =
            words.clone().fold((0, 0), |(count, length), word| (count + 1, length + word.len()));
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = Vec::with_capacity(NUMBER * (count + 1) + length);
        bytes.extend(number(count));
        let mut end = 0;
        for word in words.clone() {
            end += word.len();
            bytes.extend(number(end));
        }
        words.for_each(|word| bytes.extend(word.as_bytes()));
        Self { bytes: bytes.into() }
    }

    fn number(&self, index: usize) -> usize {
        let bytes = self.bytes.get(NUMBER * index..).and_then(<[u8]>::first_chunk);
        usize::try_from(bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))).unwrap_or(usize::MAX)
    }

    fn len(&self) -> usize {
        self.number(0)
    }

    /// One of them.
    pub(crate) fn get(&self, index: usize) -> Option<&str> {
        if index >= self.len() {
            return None;
        }
        let begin = if index == 0 { 0 } else { self.number(index) };
        let text = self.bytes.get(NUMBER * (self.len() + 1)..)?;
        str::from_utf8(text.get(begin..self.number(index + 1))?).ok()
    }

    /// Those from `index` on.
    pub(crate) fn from(&self, index: usize) -> impl Iterator<Item = &str> {
        (index..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        let words = Words::new(["", "one", "", "zwölf", ""].into_iter());
        let all: Vec<_> = words.from(0).collect();
        assert_eq!(all, ["", "one", "", "zwölf", ""]);
        assert_eq!((words.get(3), words.get(5)), (Some("zwölf"), None));
        assert_eq!(words.from(3).collect::<Vec<_>>(), ["zwölf", ""]);
        assert_eq!(Words::new([].into_iter()).get(0), None);
    }
}
