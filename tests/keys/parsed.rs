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
    for _ in 0..5_000 {
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
    let mut compared = 0;
    for _ in 0..25_000 {
        let mut text = random_key(&mut rng).to_string().into_bytes();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..text.len());
            text[at] = if rng.bool() { rng.choice(*b"%#|:+a2FfC ").expect("some") } else { rng.u8(..128) };
        }
        let text = String::from_utf8(text).expect("it is ASCII");
        let Ok(key) = text.parse::<Key>() else { continue };
        let (kinds, values) = text.split_once(':').expect("a kind");
        // No value makes a certain hash.
        if values.contains('#') {
            continue;
        }
        compared += 1;
        let parts = kinds
            .split('+')
            .zip(values.split('|'))
            .map(|(kind, value)| Key::new(&String::from_utf8(decoded(kind)).expect("a kind is text"), decoded(value)));
        assert_eq!(parts.reduce(|first, second| first.join(&second)), Some(key), "{text}");
    }
    assert!(compared > 250, "{compared} of them are the text of a key of values");
}

#[test]
fn text_that_no_key_displays_or_that_is_longer_than_a_kilobyte_is_refused() {
    let plain =
        ["", "user", "user:a b", "user:a}b", "user:%61", "user:a%7db", "user:%", "user:é", "us\ner:a", "user:a\0"];
    let parts = ["a+b:1", "a:1|2", "a+b:1|2|3", "user:#", "user:#abc", "a{b:1", "a%41:1", "%FF:1"];
    let hashes = ["G", "A"].map(|digit| format!("user:#{}", digit.repeat(32)));
    let long = format!("user:{}", "a".repeat(65));
    let kilobyte = [format!("{}:ada", "k".repeat(1_021)), format!("a{}:{}", "+a".repeat(400), "|".repeat(400))];
    let made = hashes.iter().chain([&long]).chain(&kilobyte).map(String::as_str);
    for text in plain.into_iter().chain(parts).chain(made) {
        let error = text.parse::<Key>().expect_err(text);
        assert!(error.is_invalid(), "{error}");
    }
    assert!(format!("{}:ada", "k".repeat(1_020)).parse::<Key>().is_ok());
}
