//! Keys that are parsed from the text of other keys.

use tollgate::Key;

/// A key of random bytes, of one part or several.
fn random_key(rng: &mut fastrand::Rng) -> Key {
    let mut text = |most: usize| -> Vec<u8> {
        let all = rng.bool();
        let byte =
            |rng: &mut fastrand::Rng| if all { rng.u8(..) } else { rng.choice(*b"a:+|#%{} \x7fZ9").expect("some") };
        (0..rng.usize(..most)).map(|_| byte(rng)).collect()
    };
    let (kind, value) = (String::from_utf8_lossy(&text(12)).into_owned(), text(80));
    let key = if rng.bool() { Key::new(&kind, value) } else { Key::hashed(&kind, value) };
    if rng.u8(..3) == 0 { key.join(&random_key(rng)) } else { key }
}

#[test]
fn a_key_is_parsed_from_the_text_that_it_displays() {
    let mut rng = fastrand::Rng::with_seed(41);
    for _ in 0..20_000 {
        let key = random_key(&mut rng);
        assert_eq!(key.to_string().parse::<Key>().ok(), Some(key));
    }
    for text in ["global:", "anonymous:", "ambiguous:203.0.113.9", "ip:2001:db8::/56", "header x-user+method:ada|GET"] {
        assert_eq!(text.parse::<Key>().expect("it is the text of a key").as_str(), text);
    }
}

/// The bytes of escaped text.
fn decoded(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

#[test]
fn other_text_is_refused_or_is_the_text_of_the_key_of_what_it_stands_for() {
    let mut rng = fastrand::Rng::with_seed(42);
    let mut parsed = 0;
    for _ in 0..100_000 {
        let mut text = random_key(&mut rng).to_string().into_bytes();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..text.len());
            text[at] = if rng.bool() { rng.choice(*b"%#|:+a2FfC ").expect("some") } else { rng.u8(..128) };
        }
        let text = String::from_utf8(text).expect("it is ASCII");
        let Ok(key) = text.parse::<Key>() else { continue };
        parsed += 1;
        let (kinds, values) = text.split_once(':').expect("a kind");
        let parts = kinds.split('+').zip(values.split('|')).map(|(kind, value)| {
            let kind = String::from_utf8(decoded(kind)).expect("a kind is text");
            // No value makes a certain hash.
            if value.starts_with('#') {
                format!("{kind}:{value}").parse().unwrap()
            } else {
                Key::new(&kind, decoded(value))
            }
        });
        if !values.contains('#') {
            assert_eq!(parts.reduce(|first: Key, second| first.join(&second)), Some(key), "{text}");
        }
    }
    assert!(parsed > 1_000, "{parsed} of them are the text of a key");
}

#[track_caller]
fn refused(text: &str) {
    let error = text.parse::<Key>().expect_err(text);
    assert!(error.is_invalid(), "{error}");
}

#[test]
fn text_that_is_longer_than_a_kilobyte_is_refused() {
    refused(&format!("{}:ada", "k".repeat(1_021)));
    refused(&format!("a{}:{}", "+a".repeat(400), "|".repeat(400)));
    assert!(format!("{}:ada", "k".repeat(1_020)).parse::<Key>().is_ok());
}

#[test]
fn text_that_no_key_displays_is_refused() {
    for text in
        ["", "user", "user:a b", "user:a}b", "user:%61", "user:a%7db", "user:%", "user:é", "us\ner:a", "user:a\0"]
    {
        refused(text);
    }
    for text in ["a+b:1", "a:1|2", "a+b:1|2|3", "user:#", "user:#abc", "a{b:1", "a%41:1", "%FF:1"] {
        refused(text);
    }
    refused(&format!("user:#{}", "G".repeat(32)));
    refused(&format!("user:#{}", "A".repeat(32)));
    refused(&format!("user:{}", "a".repeat(65)));
}
