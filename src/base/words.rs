//! Words for messages: numbers as people write them, lists, and the name that was probably meant.

/// `1,000,000`.
#[must_use]
pub fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::from(if value < 0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of a thing, by its name for one: `1 rank`, `1,000 ranks`.
#[must_use]
pub fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", grouped(count.into()), if count == 1 { "" } else { "s" })
}

/// A number in its shortest form: `0.5`, `1,000`, `1e-30`.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
pub fn number(value: f64) -> String {
    let is_whole = value.fract() == 0.0 && value.abs() < 9e15;
    match value {
        _ if is_whole => grouped(value as i128),
        _ if value.abs() < 1e-6 => format!("{value:e}"),
        _ => value.to_string(),
    }
}

/// The name nearest to `word`, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    const LONGEST: usize = 40;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase().replace('_', "-");
    let names: Vec<&str> = names.into_iter().collect();
    let mut longer = names.iter().filter(|name| word.len() >= 3 && name.starts_with(&word));
    if let (Some(name), None) = (longer.next(), longer.next()) {
        return Some(name);
    }
    let distance = |name: &str| strsim::osa_distance(&word, &name.to_lowercase().replace('_', "-"));
    let near = names.into_iter().map(|name| (distance(name), name)).min_by_key(|(distance, _)| *distance);
    let letters = word.chars().count();
    let is_near = |distance: usize, name: &str| distance < letters && distance <= (name.len().max(letters) / 3).max(1);
    near.filter(|&(distance, name)| is_near(distance, name)).map(|(_, name)| name)
}

/// `raw` on one line, at most 40 characters of it.
#[must_use]
pub fn shortened(raw: &str) -> String {
    const LONGEST: usize = 40;
    let mut text: String = raw.chars().take(LONGEST).flat_map(visible).collect();
    if raw.chars().nth(LONGEST).is_some() {
        text.push_str("...");
    }
    text
}

/// A character as it may stand in a message: control characters are escaped, so that no text moves the cursor.
fn visible(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control();
    character.escape_default().filter(move |_| escaped).chain((!escaped).then_some(character))
}

/// `name` as a word for a POSIX shell: in quotes where it has more than letters, digits and what paths are made of.
#[must_use]
pub fn shell_word(name: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+=:@%,".contains(character);
    if !name.is_empty() && name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let check = |value: i128, expected: &str| assert_eq!(grouped(value), expected);
        check(0, "0");
        check(-999, "-999");
        check(1_000, "1,000");
        check(-65_536, "-65,536");
        check(1_234_567, "1,234,567");
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0, 1, 2, 1_000].map(|count| counted(count, "rank")), ["0 ranks", "1 rank", "2 ranks", "1,000 ranks"]);
    }

    #[test]
    fn the_nearest_name_is_found() {
        let names = ["naive", "gpipe", "1f1b", "edge-fifo"];
        let check = |word: &str, expected: Option<&str>| assert_eq!(nearest(word, names), expected, "{word}");
        check("1fb1", Some("1f1b"));
        check("GPipe", Some("gpipe"));
        check("edge_fifo", Some("edge-fifo"));
        check("edge", Some("edge-fifo"));
        check("interleaved", None);
        check("", None);
        check("x", None);
        check("\u{65e5}\u{672c}\u{8a9e}", None);
    }

    #[test]
    fn values_stay_short_and_harmless() {
        assert_eq!(shortened("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shortened(&"x".repeat(50)), format!("{}...", "x".repeat(40)));
    }
}
