//! Every example of RFC 7541's Appendix C that a decoder can read, and what a client may do wrong.

use std::sync::LazyLock;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::decode::KEPT_BYTES;
use super::table::STATIC;
use super::{
    Decoded, Decoder, Field, HpackError, Name, encode::put_field, huffman, put_fields,
    put_size_update, put_status,
};

const TABLE: usize = 4096;
const LIST: usize = 16 << 10;

fn decoder() -> Decoder {
    Decoder::new(TABLE, LIST)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

fn own(name: &Name) -> String {
    match name {
        Name::Authority => ":authority",
        Name::Method => ":method",
        Name::Path => ":path",
        Name::Scheme => ":scheme",
        Name::Protocol => ":protocol",
        Name::Status => ":status",
        Name::Header(header) => header.as_str(),
    }
    .to_owned()
}

fn lines(fields: &[Field]) -> Vec<String> {
    let line = |field: &Field| {
        let value = field.value.to_str().expect("a text");
        format!("{}: {value}", own(&field.name))
    };
    fields.iter().map(line).collect()
}

/// The fields of a block that is as it should be.
fn whole(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
    let mut fields = Vec::new();
    assert_eq!(decoder.decode(block, &mut fields), Ok(Decoded::Whole));
    lines(&fields)
}

/// What comes of a block that is not, with a decoder of its own.
fn outcome(block: &[u8]) -> Result<Decoded, HpackError> {
    outcome_of(&mut decoder(), block)
}

fn outcome_of(decoder: &mut Decoder, block: &[u8]) -> Result<Decoded, HpackError> {
    let before = Field {
        name: Name::Path,
        value: HeaderValue::from_static("/before"),
    };
    let mut fields = vec![before];
    let outcome = decoder.decode(block, &mut fields);
    if !matches!(outcome, Ok(Decoded::Whole)) && outcome.is_ok() {
        assert_eq!(
            lines(&fields),
            [":path: /before"],
            "its fields are discarded"
        );
    }
    outcome
}

/// A literal field that the table keeps.
fn kept(name: &str, value: &str) -> Vec<u8> {
    literal(0x40, name.as_bytes(), value.as_bytes())
}

fn literal(kind: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut block = vec![kind];
    for text in [name, value] {
        assert!(text.len() < 127);
        block.push(text.len() as u8);
        block.extend(text);
    }
    block
}

/// A string in Huffman's code, as a client sends it.
fn coded(text: &[u8]) -> Vec<u8> {
    let mut bits = Vec::new();
    for byte in text {
        let (code, length) = CODES[usize::from(*byte)];
        bits.extend((0..length).rev().map(|place| code >> place & 1 == 1));
    }
    while bits.len() % 8 != 0 {
        bits.push(true);
    }
    bits.chunks(8)
        .map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | u8::from(*bit)))
        .collect()
}

static CODES: LazyLock<Vec<(u32, u8)>> = LazyLock::new(|| (0..257).map(code_of).collect());

/// By counting the codes before it, which is not how the tables are computed.
fn code_of(symbol: usize) -> (u32, u8) {
    let length = huffman::BITS[symbol];
    let mut code = 0u64;
    for (other, bits) in huffman::BITS.iter().enumerate() {
        if (*bits, other) < (length, symbol) {
            code += 1 << (32 - bits);
        }
    }
    ((code >> (32 - length)) as u32, length)
}

#[test]
fn examples_of_integers() {
    // C.1.1 to C.1.3, as sizes of the table.
    for (bytes, written) in [(10, "2a"), (1337, "3f9a0a"), (0, "20"), (31, "3f00")] {
        let mut out = BytesMut::new();
        put_size_update(&mut out, bytes);
        assert_eq!(out.to_vec(), hex(written), "{bytes}");
        let mut decoder = decoder();
        assert_eq!(whole(&mut decoder, &out), Vec::<String>::new());
        assert_eq!(decoder.changes(), 1);
    }
}

#[test]
fn examples_of_fields() {
    // C.2.1
    let mut decoder = decoder();
    let block = hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    assert_eq!(whole(&mut decoder, &block), ["custom-key: custom-header"]);
    assert_eq!(decoder.table.size(), (55, 1));
    // C.2.2
    let block = hex("040c 2f73 616d 706c 652f 7061 7468");
    assert_eq!(whole(&mut decoder, &block), [":path: /sample/path"]);
    // C.2.3
    let block = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let mut fields = Vec::new();
    assert_eq!(decoder.decode(&block, &mut fields), Ok(Decoded::Whole));
    assert_eq!(lines(&fields), ["password: secret"]);
    assert!(fields[0].value.is_sensitive());
    // C.2.4
    assert_eq!(whole(&mut decoder, &hex("82")), [":method: GET"]);
    assert_eq!(decoder.table.size(), (55, 1));
}

/// A connection's blocks with what each of them is, and the size of the table after it.
fn conversation(decoder: &mut Decoder, blocks: [(&str, &[&str], usize); 3]) {
    for (block, fields, bytes) in blocks {
        assert_eq!(whole(decoder, &hex(block)), fields);
        assert_eq!(decoder.table.size().0, bytes);
    }
}

const FIRST_REQUEST: &[&str] = &[
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
];
const SECOND_REQUEST: &[&str] = &[
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
    "cache-control: no-cache",
];
const THIRD_REQUEST: &[&str] = &[
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
];

#[test]
fn examples_of_requests() {
    // C.3
    conversation(
        &mut decoder(),
        [
            (
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                FIRST_REQUEST,
                57,
            ),
            ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND_REQUEST, 110),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                THIRD_REQUEST,
                164,
            ),
        ],
    );
    // C.4
    conversation(
        &mut decoder(),
        [
            (
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                FIRST_REQUEST,
                57,
            ),
            ("8286 84be 5886 a8eb 1064 9cbf", SECOND_REQUEST, 110),
            (
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                THIRD_REQUEST,
                164,
            ),
        ],
    );
}

const FIRST_RESPONSE: &[&str] = &[
    ":status: 302",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const SECOND_RESPONSE: &[&str] = &[
    ":status: 307",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const THIRD_RESPONSE: &[&str] = &[
    ":status: 200",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:22 GMT",
    "location: https://www.example.com",
    "content-encoding: gzip",
    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

/// A table of 256 bytes, as in these examples: it is full after the first response.
fn small() -> Decoder {
    let mut decoder = Decoder::new(256, LIST);
    let mut update = BytesMut::new();
    put_size_update(&mut update, 256);
    assert_eq!(whole(&mut decoder, &update), Vec::<String>::new());
    decoder
}

#[test]
fn examples_of_evictions() {
    // C.5
    conversation(
        &mut small(),
        [
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
                 6c65 2e63 6f6d",
                FIRST_RESPONSE,
                222,
            ),
            ("4803 3330 37c1 c0bf", SECOND_RESPONSE, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
                 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
                 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
                 3d31",
                THIRD_RESPONSE,
                215,
            ),
        ],
    );
    // C.6
    conversation(
        &mut small(),
        [
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                FIRST_RESPONSE,
                222,
            ),
            ("4883 640e ffc1 c0bf", SECOND_RESPONSE, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                THIRD_RESPONSE,
                215,
            ),
        ],
    );
}

#[test]
fn every_byte_and_pairs_of_them_in_huffmans_code() {
    let back = |text: &[u8]| {
        let mut out = Vec::new();
        huffman::decode(&coded(text), &mut out).map(|()| out)
    };
    for first in 0..=255u8 {
        assert_eq!(back(&[first]), Ok(vec![first]));
        for second in 0..=255u8 {
            assert_eq!(back(&[first, second]), Ok(vec![first, second]));
        }
    }
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(back(&all), Ok(all));
    assert_eq!(back(b""), Ok(Vec::new()));
    // Those that RFC 7541's Appendix B begins and ends with, to anchor the codes of this file.
    assert_eq!(code_of(0), (0x1ff8, 13));
    assert_eq!(code_of(usize::from(b'a')), (0x3, 5));
    assert_eq!(code_of(255), (0x3ff_ffee, 26));
    assert_eq!(code_of(256), (0x3fff_ffff, 30));
}

#[test]
fn huffmans_code_is_padded_by_less_than_a_byte_of_ones() {
    let decoded = |bytes: &[u8]| {
        let mut out = Vec::new();
        huffman::decode(bytes, &mut out).map(|()| out)
    };
    // 'a' is 00011, ':' is 1011100.
    assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
    assert_eq!(decoded(&[0b1011_1001]), Ok(b":".to_vec()));
    assert_eq!(decoded(&[0b0001_1000]), Err(HpackError::Huffman), "zeros");
    assert_eq!(decoded(&[0b0001_1110]), Err(HpackError::Huffman), "a zero");
    for bytes in [&[0xff][..], &[0b0001_1111, 0xff], &[0xff, 0xff, 0xff]] {
        assert_eq!(decoded(bytes), Err(HpackError::Huffman), "a byte of ones");
    }
    // The end of a string, alone and after a byte.
    assert_eq!(decoded(&[0xff; 4]), Err(HpackError::Huffman));
    assert_eq!(
        decoded(&[0b0001_1111, 0xff, 0xff, 0xff, 0xff]),
        Err(HpackError::Huffman)
    );
    // In a block it is an error of the connection.
    assert_eq!(
        outcome(&[0x00, 0x81, 0xff, 0x01, b'v']),
        Err(HpackError::Huffman)
    );
    assert_eq!(
        outcome(&[0x04, 0x81, 0b0001_1000]),
        Err(HpackError::Huffman)
    );
}

#[test]
fn an_index_of_no_entry() {
    assert_eq!(outcome(&[0x80]), Err(HpackError::Index));
    assert_eq!(outcome(&[0xbd]), Ok(Decoded::Whole), "the last static one");
    assert_eq!(outcome(&[0xbe]), Err(HpackError::Index));
    // As a name's, of each kind of literal.
    assert_eq!(outcome(&[0x7e, 0x01, b'v']), Err(HpackError::Index));
    assert_eq!(outcome(&[0x0f, 0x2f, 0x01, b'v']), Err(HpackError::Index));
    assert_eq!(outcome(&[0x1f, 0x2f, 0x01, b'v']), Err(HpackError::Index));
    // Of the dynamic table's oldest entry, and the one after it.
    let mut decoder = decoder();
    whole(&mut decoder, &kept("a", "1"));
    whole(&mut decoder, &kept("b", "2"));
    assert_eq!(whole(&mut decoder, &[0xbe, 0xbf]), ["b: 2", "a: 1"]);
    assert_eq!(outcome_of(&mut decoder, &[0xc0]), Err(HpackError::Index));
}

#[test]
fn an_integer_of_too_many_bytes() {
    // Four more bytes are read, even if they say nothing.
    assert_eq!(outcome(&[0x3f, 0x80, 0x80, 0x80, 0x00]), Ok(Decoded::Whole));
    for more in 4..9 {
        let mut block = vec![0x3f];
        block.extend(vec![0x80; more]);
        block.push(0x00);
        assert_eq!(outcome(&block), Err(HpackError::Integer), "{more}");
    }
    let largest = [0x0f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(outcome(&largest), Err(HpackError::Integer));
    // The largest that is read is no index, no length and no size.
    assert_eq!(
        outcome(&[0xff, 0xff, 0xff, 0xff, 0x7f]),
        Err(HpackError::Index)
    );
    assert_eq!(
        outcome(&[0x00, 0x7f, 0xff, 0xff, 0xff, 0x7f]),
        Err(HpackError::Truncated)
    );
    assert_eq!(
        outcome(&[0x3f, 0xff, 0xff, 0xff, 0x7f]),
        Err(HpackError::TableSize)
    );
}

#[test]
fn a_block_that_ends_within_a_field() {
    let mut requests = hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff");
    requests.extend(hex("1008 7061 7373 776f 7264 0673 6563 7265 74"));
    requests.extend(hex("0f10 03 612f 62"));
    // Where a field ends, and the block may.
    let ends = [0, 1, 2, 3, 17, 34, 40];
    assert_eq!(requests.len(), 40);
    for length in 0..=requests.len() {
        let outcome = outcome(&requests[..length]);
        if ends.contains(&length) {
            assert_eq!(outcome, Ok(Decoded::Whole), "{length}");
        } else {
            assert_eq!(outcome, Err(HpackError::Truncated), "{length}");
        }
    }
}

#[test]
fn sizes_of_the_table_begin_a_block_within_the_settings() {
    let update = |bytes| {
        let mut out = BytesMut::new();
        put_size_update(&mut out, bytes);
        out.to_vec()
    };
    assert_eq!(outcome(&update(TABLE)), Ok(Decoded::Whole));
    assert_eq!(outcome(&update(TABLE + 1)), Err(HpackError::TableSize));
    assert_eq!(outcome(&[0x20, 0x3f, 0x00, 0x82]), Ok(Decoded::Whole));
    assert_eq!(outcome(&[0x82, 0x20]), Err(HpackError::LateTableSize));
    assert_eq!(outcome(&[0x82, 0x20, 0x82]), Err(HpackError::LateTableSize));
    // Shrinking evicts the oldest.
    let mut decoder = decoder();
    whole(&mut decoder, &kept("a", "1"));
    whole(&mut decoder, &kept("b", "2"));
    assert_eq!(decoder.table.size(), (68, 2));
    whole(&mut decoder, &update(67));
    assert_eq!(decoder.table.size(), (34, 1));
    assert_eq!(whole(&mut decoder, &[0xbe]), ["b: 2"]);
    whole(&mut decoder, &kept("c", "3"));
    assert_eq!(whole(&mut decoder, &[0xbe]), ["c: 3"]);
    assert_eq!(outcome_of(&mut decoder, &[0xbf]), Err(HpackError::Index));
}

#[test]
fn a_table_of_no_size() {
    let mut decoder = Decoder::new(0, LIST);
    // Until the client has read the settings, the table is that of the protocol.
    whole(&mut decoder, &kept("a", "1"));
    assert_eq!(whole(&mut decoder, &[0xbe]), ["a: 1"]);
    let mut block = vec![0x20];
    block.extend(kept("b", "2"));
    assert_eq!(whole(&mut decoder, &block), ["b: 2"]);
    assert_eq!(decoder.table.size(), (0, 0));
    assert_eq!(outcome_of(&mut decoder, &[0xbe]), Err(HpackError::Index));
    assert_eq!(
        outcome_of(&mut decoder, &[0x21]),
        Err(HpackError::TableSize)
    );
}

#[test]
fn a_field_larger_than_the_table_empties_it() {
    let mut decoder = small();
    whole(&mut decoder, &kept("a", "1"));
    // Named by the entry that it evicts.
    let mut block = vec![0x7e, 126];
    block.extend([b'v'; 126]);
    let mut long = vec![0x7e, 0x7f, 0x80, 0x01];
    long.extend([b'v'; 255]);
    assert_eq!(whole(&mut decoder, &block).len(), 1);
    assert_eq!(decoder.table.size(), (34 + 32 + 127, 2));
    assert!(whole(&mut decoder, &long)[0].starts_with("a: vvv"));
    assert_eq!(decoder.table.size(), (0, 0));
}

#[test]
fn a_list_that_is_too_long_leaves_the_table_in_step() {
    // "a: 1" counts 34.
    let three = [kept("a", "1"), kept("b", "2"), kept("c", "3")].concat();
    let mut exact = Decoder::new(TABLE, 3 * 34);
    assert_eq!(outcome_of(&mut exact, &three), Ok(Decoded::Whole));
    let mut small = Decoder::new(TABLE, 3 * 34 - 1);
    assert_eq!(outcome_of(&mut small, &three), Ok(Decoded::TooLong));
    assert_eq!(small.table.size(), (3 * 34, 3));
    assert_eq!(whole(&mut small, &[0xbe, 0xc0]), ["c: 3", "a: 1"]);
    // Literals that are not kept count as well, and so does the same entry again and again.
    let literals = literal(0x00, b"a", b"1").repeat(3);
    assert_eq!(outcome_of(&mut small, &literals), Ok(Decoded::TooLong));
    assert_eq!(outcome_of(&mut small, &[0xbe; 3]), Ok(Decoded::TooLong));
    assert_eq!(outcome_of(&mut small, &[0xbe; 2]), Ok(Decoded::Whole));
    // One that has become too long stays so, and an error after that is one of the connection.
    assert_eq!(
        outcome_of(&mut small, &[0xbe, 0xbe, 0xbe, 0xff, 0x7f]),
        Err(HpackError::Index)
    );
}

#[test]
fn a_name_or_value_that_is_forbidden() {
    let forbidden: [(&[u8], &[u8]); 10] = [
        (b"Upper", b"v"),
        (b"", b"v"),
        (b":unknown", b"v"),
        (b":", b"v"),
        (b":Path", b"/"),
        (b"with space", b"v"),
        (b"with\0zero", b"v"),
        (b"v\xc3\xa4", b"v"),
        (b"name", b"a\nb"),
        (b"name", b"a\0b"),
    ];
    for (name, value) in forbidden {
        for kind in [0x00, 0x10, 0x40] {
            let block = literal(kind, name, value);
            assert_eq!(outcome(&block), Ok(Decoded::Malformed), "{name:?}");
        }
    }
    // What a header's value may have.
    for value in [&b""[..], b"a\tb", b" a ", b"\xc3\xa4", b"~"] {
        assert_eq!(
            outcome(&literal(0x00, b"name", value)),
            Ok(Decoded::Whole),
            "{value:?}"
        );
    }
    // It is the answer even if the list is too long besides.
    let mut both = Decoder::new(TABLE, 10);
    let block = [kept("a", "1"), kept("A", "1")].concat();
    assert_eq!(outcome_of(&mut both, &block), Ok(Decoded::Malformed));
}

#[test]
fn a_forbidden_field_is_in_the_table_as_well() {
    let mut decoder = decoder();
    let blocks = [kept("a", "1"), kept("B", "2"), kept("c", "\n")];
    assert_eq!(
        outcome_of(&mut decoder, &blocks.concat()),
        Ok(Decoded::Malformed)
    );
    assert_eq!(decoder.table.size(), (3 * 34, 3));
    assert_eq!(whole(&mut decoder, &[0xc0]), ["a: 1"]);
    assert_eq!(outcome_of(&mut decoder, &[0xbf]), Ok(Decoded::Malformed));
    assert_eq!(outcome_of(&mut decoder, &[0xbe]), Ok(Decoded::Malformed));
    // The name of a forbidden value is not forbidden.
    assert_eq!(whole(&mut decoder, &[0x7e, 0x01, b'3']), ["c: 3"]);
    assert_eq!(
        outcome_of(&mut decoder, &[0x0f, 0x31, 0x01, b'3']),
        Ok(Decoded::Malformed)
    );
}

#[test]
fn every_name_of_http_2s_own() {
    let mut decoder = decoder();
    for name in [
        ":authority",
        ":method",
        ":path",
        ":scheme",
        ":protocol",
        ":status",
    ] {
        let block = literal(0x00, name.as_bytes(), b"v");
        assert_eq!(whole(&mut decoder, &block), [format!("{name}: v")]);
    }
}

#[test]
fn the_table_changes_when_it_says_so() {
    let mut decoder = decoder();
    let mut changes = 0;
    let mut after = |block: &[u8]| {
        whole(&mut decoder, block);
        let changed = decoder.changes() != changes;
        changes = decoder.changes();
        changed
    };
    assert!(after(&kept("a", "1")));
    assert!(!after(&[0x82, 0xbe]));
    assert!(!after(&literal(0x00, b"b", b"2")));
    assert!(!after(&literal(0x10, b"b", b"2")));
    assert!(after(&[0x20]));
    assert!(after(&[0x3f, 0xe1, 0x1f]));
    // One that is larger than the table leaves another table behind.
    assert!(after(&kept("a", "1")));
    let mut large = vec![0x41, 0x7f, 0x89, 0x26];
    large.extend([b'v'; 5000]);
    assert!(after(&large));
}

#[test]
fn static_entries_in_order() {
    assert_eq!(STATIC.len(), 61);
    for (place, entry) in STATIC.iter().enumerate() {
        let index = place as u8 + 1;
        let field = entry.clone().into_field().expect("a field");
        let name = own(&field.name);
        assert_eq!(entry.bytes(), name.len() + field.value.len() + 32, "{name}");
        let mut fields = Vec::new();
        let whole = decoder().decode(&[0x80 | index], &mut fields);
        assert_eq!(whole, Ok(Decoded::Whole));
        assert_eq!(fields, [field]);
        if let Name::Header(header) = &fields[0].name {
            // The list of the encoder is one of its own.
            let mut out = BytesMut::new();
            put_field(&mut out, header, &HeaderValue::from_static("v"));
            let written = match index {
                ..15 => vec![index],
                _ => vec![15, index - 15],
            };
            assert_eq!(out[..written.len()], written, "{name}");
        }
    }
    let line = |index: usize| lines(&[STATIC[index - 1].clone().into_field().expect("a field")]);
    for (index, expected) in [
        (1, ":authority: "),
        (4, ":path: /"),
        (7, ":scheme: https"),
        (14, ":status: 500"),
        (15, "accept-charset: "),
        (16, "accept-encoding: gzip, deflate"),
        (19, "accept: "),
        (23, "authorization: "),
        (31, "content-type: "),
        (38, "host: "),
        (58, "user-agent: "),
        (61, "www-authenticate: "),
    ] {
        assert_eq!(line(index), [expected], "{index}");
    }
}

#[test]
fn statuses() {
    for code in 100..1000 {
        let status = StatusCode::from_u16(code).expect("a status");
        let mut out = BytesMut::new();
        put_status(&mut out, status);
        assert_eq!(whole(&mut decoder(), &out), [format!(":status: {code}")]);
        let whole = [200, 204, 206, 304, 400, 404, 500].contains(&code);
        assert_eq!(out.len(), if whole { 1 } else { 5 }, "{code}");
    }
}

#[test]
fn fields_that_are_put() {
    let mut fields = HeaderMap::new();
    for entry in &STATIC[14..] {
        let Some(Name::Header(name)) = &entry.name else {
            panic!("not a header");
        };
        fields.append(name.clone(), HeaderValue::from_static("v"));
    }
    let mut out = BytesMut::new();
    put_fields(&mut out, &fields);
    // Two bytes of an index, two of a value: every name is that of the static table.
    assert_eq!(out.len(), 4 * fields.len());
    let mut decoder = decoder();
    assert_eq!(whole(&mut decoder, &out).len(), fields.len());

    let long = "v".repeat(300);
    fields.clear();
    fields.append("grpc-status", HeaderValue::from_static("0"));
    fields.append("date", HeaderValue::from_static(""));
    fields.append(
        "grpc-status",
        HeaderValue::from_str(&long).expect("a value"),
    );
    out.clear();
    put_fields(&mut out, &fields);
    let expected = ["grpc-status: 0", &format!("grpc-status: {long}"), "date: "];
    assert_eq!(whole(&mut decoder, &out), expected);
    assert_eq!(decoder.changes(), 0);
}

#[test]
fn a_sensitive_value_is_of_no_table_ever() {
    let mut value = HeaderValue::from_static("secret");
    for (sensitive, first) in [(false, 0x0f), (true, 0x1f)] {
        value.set_sensitive(sensitive);
        let mut out = BytesMut::new();
        put_field(&mut out, &http::header::AUTHORIZATION, &value);
        assert_eq!(out[..2], [first, 0x08]);
        let mut fields = Vec::new();
        assert_eq!(decoder().decode(&out, &mut fields), Ok(Decoded::Whole));
        assert_eq!(fields[0].value.is_sensitive(), sensitive);
        out.clear();
        put_field(&mut out, &HeaderName::from_static("token"), &value);
        assert_eq!(out[0], first & 0x10);
    }
}

/// Arbitrary bytes, and blocks with one wrong byte, on connections that live on after each.
#[test]
fn arbitrary_blocks() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7541);
    let mut seen = [0; 4];
    for _ in 0..2_000 {
        let most_table = [0, 100, TABLE, 2 * TABLE][random.random_range(0..4)];
        let most_list = [100, LIST][random.random_range(0..2)];
        let mut decoder = Decoder::new(most_table, most_list);
        for _ in 0..20 {
            let block = arbitrary(&mut random);
            let before = decoder.changes();
            let mut fields = Vec::new();
            let outcome = decoder.decode(&block, &mut fields);
            let (bytes, entries) = decoder.table.size();
            assert!(bytes <= most_table.max(TABLE) && entries <= bytes / 32);
            assert!(fields.len() <= most_list / 32 + 1);
            seen[match outcome {
                Ok(Decoded::Whole) => 0,
                Ok(Decoded::TooLong) => 1,
                Ok(Decoded::Malformed) => 2,
                Err(_) => 3,
            }] += 1;
            if outcome.is_err() {
                break;
            }
            for room in [&decoder.strings.name, &decoder.strings.value] {
                assert!(room.is_empty() && room.capacity() <= KEPT_BYTES);
            }
            if decoder.changes() == before {
                let mut again = Vec::new();
                assert_eq!(decoder.decode(&block, &mut again), outcome);
                assert_eq!(again, fields, "the same block again");
            }
        }
    }
    assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
}

fn arbitrary(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    if random.random_range(0..8) == 0 {
        let length = random.random_range(0..200);
        return (0..length).map(|_| random.random()).collect();
    }
    let mut block = Vec::new();
    for _ in 0..random.random_range(0..12) {
        let name = ["", "a", "long-name", "Upper", ":path", ":no"][random.random_range(0..6)];
        let value = vec![random.random_range(b'a'..=b'z'); random.random_range(0..100)];
        match random.random_range(0..4) {
            0 => block.push(0x80 | random.random_range(1..=64u8)),
            1 => block.extend(literal(0x00, name.as_bytes(), &value)),
            2 => block.extend(literal(0x40, b"name", &value)),
            _ => {
                let value = coded(&value);
                block.extend([
                    0x40 | random.random_range(1..62u8),
                    0x80 | value.len() as u8,
                ]);
                block.extend(value);
            }
        }
    }
    if random.random_range(0..3) == 0 && !block.is_empty() {
        let place = random.random_range(0..block.len());
        block[place] = random.random();
    }
    if random.random_range(0..10) == 0 {
        // Long enough for the room of decoded strings to grow.
        let value = coded(&[b'e'; 3000]);
        let more = value.len() - 127;
        block.extend([0x04, 0xff, more as u8 | 0x80, (more >> 7) as u8]);
        block.extend(value);
    }
    block
}
