//! JSON text as the reference operator writes it: keys sorted bytewise, HTML-safe strings, shortest numbers.

use std::fmt::Write;

use serde_json::{Number, Value};

/// The value on one line, without spaces.
pub fn compact(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value, None);
    out
}

/// The value with two spaces per level and one element per line, without a final newline.
pub fn indented(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    write_value(&mut out, value, Some(0));
    out
}

/// A floating point number in its shortest form that reads back the same: integral values without a fraction,
/// an exponent only below 1e-6 and from 1e21 on (`1e-7`, `1e+21`).
pub fn shortest(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

fn write_value(out: &mut String, value: &Value, level: Option<usize>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => write_list(out, ('[', ']'), items, level, write_value),
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            write_list(out, ('{', '}'), &entries, level, |out, (key, value), level| {
                write_string(out, key);
                out.push_str(if level.is_some() { ": " } else { ":" });
                write_value(out, value, level);
            });
        }
    }
}

fn write_list<T>(
    out: &mut String,
    (open, close): (char, char),
    items: &[T],
    level: Option<usize>,
    write_item: impl Fn(&mut String, &T, Option<usize>),
) {
    out.push(open);
    let inner = level.map(|depth| depth + 1);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        new_line(out, inner);
        write_item(out, item, inner);
    }
    if !items.is_empty() {
        new_line(out, level);
    }
    out.push(close);
}

fn new_line(out: &mut String, level: Option<usize>) {
    if let Some(depth) = level {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    }
}

/// Integers keep their digits (D25): only numbers that are no 64-bit integers pass through a double.
fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if !number.is_i64() && !number.is_u64() => out.push_str(&shortest(float)),
        _ => out.push_str(&number.to_string()),
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a String does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(50.0, "50")]
    #[case(1.0, "1")]
    #[case(2.5, "2.5")]
    #[case(0.001, "0.001")]
    #[case(0.000_001, "0.000001")]
    #[case(0.000_000_1, "1e-7")]
    #[case(1.5e-9, "1.5e-9")]
    #[case(1e20, "100000000000000000000")]
    #[case(1e21, "1e+21")]
    #[case(-1.25e22, "-1.25e+22")]
    #[case(0.0, "0")]
    fn numbers_take_their_shortest_form(#[case] number: f64, #[case] text: &str) {
        assert_eq!(shortest(number), text);
    }

    #[rstest]
    #[case("a<b>&c", r#""a\u003cb\u003e\u0026c""#)]
    #[case("say \"x\" \\ and\ttab\n\r", r#""say \"x\" \\ and\ttab\n\r""#)]
    #[case("\u{8}\u{c}\u{1}\u{1f}", r#""\b\f\u0001\u001f""#)]
    #[case("line\u{2028}par\u{2029}", r#""line\u2028par\u2029""#)]
    #[case("é 雪 🦀\u{7f}", "\"é 雪 🦀\u{7f}\"")]
    fn strings_are_escaped_for_html(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(compact(&json!(text)), expected);
    }

    #[rstest]
    #[case("9007199254740993")]
    #[case("-9223372036854775808")]
    #[case("18446744073709551615")]
    #[case("1048576")]
    #[case("2.5")]
    fn numbers_pass_as_written(#[case] token: &str) -> Result<(), serde_json::Error> {
        let value: Value = serde_json::from_str(token)?;
        assert_eq!(compact(&value), token);
        Ok(())
    }

    #[test]
    fn integral_floats_lose_their_fraction() {
        assert_eq!(compact(&json!({"n": 50.0, "list": [1.0, 0.15]})), r#"{"list":[1,0.15],"n":50}"#);
    }

    #[test]
    fn keys_are_sorted_bytewise_at_every_level() {
        assert_eq!(
            compact(&json!({"b": {"z": 1, "a": 2}, "B": null, "_": true})),
            r#"{"B":null,"_":true,"b":{"a":2,"z":1}}"#
        );
    }

    #[test]
    fn indentation_is_two_spaces_and_empty_lists_stay_on_one_line() {
        let text = indented(&json!({"a": [1, {"b": false}], "c": {}, "d": []}));
        assert_eq!(text, "{\n  \"a\": [\n    1,\n    {\n      \"b\": false\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}");
    }

    proptest! {
        #[test]
        fn numbers_always_read_back_the_same(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            let text = shortest(number);
            prop_assert_eq!(text.parse::<f64>().ok(), Some(number), "{}", text);
        }

        #[test]
        fn strings_always_read_back_the_same(text in any::<String>()) {
            let written = compact(&json!(text));
            prop_assert_eq!(serde_json::from_str::<Value>(&written).ok(), Some(json!(text)), "{}", written);
        }
    }
}
