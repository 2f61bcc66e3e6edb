//! The algorithms by their names in files.
//!
//! The table of algorithms comes in, at compile time; [`Algorithm::ALL`] goes out, with an algorithm's own name
//! first and its aliases after it. The tests pin the names, numbers and letters that files and servers already have.

use super::Algorithm;

/// How many names there are.
const COUNT: usize = {
    let (mut count, mut place) = (0, 0);
    while place < Algorithm::EACH.len() {
        count += 1 + Algorithm::EACH[place].facts().aliases.len();
        place += 1;
    }
    count
};

/// All names and their algorithms, in the order of the table.
const NAMES: [(&str, Algorithm); COUNT] = {
    let (mut names, mut count, mut place) = ([("", Algorithm::EACH[0]); COUNT], 0, 0);
    while place < Algorithm::EACH.len() {
        let algorithm = Algorithm::EACH[place];
        let aliases = algorithm.facts().aliases;
        names[count] = (algorithm.name(), algorithm);
        let mut alias = 0;
        while alias < aliases.len() {
            names[count + 1 + alias] = (aliases[alias], algorithm);
            alias += 1;
        }
        count += 1 + aliases.len();
        place += 1;
    }
    names
};

impl Algorithm {
    /// The algorithms there are, by the names they have in files; some have several.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// let named = |name: &str| {
    ///     let found = Algorithm::ALL.iter().find(|(known, _)| *known == name);
    ///     found.map(|(_, algorithm)| *algorithm)
    /// };
    /// assert_eq!(named("token_bucket"), Some(Algorithm::TokenBucket));
    /// assert_eq!(named("gcra"), Some(Algorithm::TokenBucket));
    /// assert_eq!(named("lucky_bucket"), None);
    /// ```
    pub const ALL: &'static [(&'static str, Algorithm)] = &NAMES;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What is kept in Redis, and read by processes of other versions: none of these ever changes.
    const FOR_GOOD: [(&str, u8, char); 6] = [
        ("fixed_window", 1, 'f'),
        ("token_bucket", 2, 't'),
        ("sliding_window", 3, 's'),
        ("sliding_log", 4, 'l'),
        ("leaky_bucket", 5, 'q'),
        ("concurrency", 6, 'h'),
    ];

    #[test]
    fn numbers_on_the_wire_and_letters_in_keys_are_what_they_always_were() {
        for (name, number, letter) in FOR_GOOD {
            let (_, algorithm) = Algorithm::ALL.iter().find(|(known, _)| *known == name).expect(name);
            assert_eq!((algorithm.facts().number, algorithm.facts().letter), (number, letter), "{name}");
        }
    }

    #[test]
    fn no_two_algorithms_have_a_name_a_number_or_a_letter_in_common() {
        let names: HashSet<_> = Algorithm::ALL.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), Algorithm::ALL.len(), "{:?}", Algorithm::ALL);
        // The letters of keys of redis-cell and of bans.
        let mut letters = HashSet::from(['c', 'b']);
        let mut numbers = HashSet::new();
        for algorithm in Algorithm::EACH {
            let facts = algorithm.facts();
            assert!(letters.insert(facts.letter), "another algorithm has the letter of {algorithm:?}");
            assert!(numbers.insert(facts.number), "another algorithm has the number of {algorithm:?}");
            assert!((1..=Algorithm::EACH.len()).contains(&facts.number.into()), "{algorithm:?} leaves a number out");
        }
    }

    #[test]
    fn what_is_named_instead_is_another_algorithm() {
        for algorithm in Algorithm::EACH {
            for instead in algorithm.facts().instead {
                let known = Algorithm::EACH.iter().find(|known| known.name() == *instead);
                assert!(known.is_some_and(|known| known != algorithm), "{algorithm:?}: {instead}");
            }
        }
    }
}
