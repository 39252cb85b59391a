//! Decodes the Huffman code of HPACK's strings (RFC 7541, 5.2 and Appendix B), four bits a step. Never encodes: what is
//! sent is short, or sent once.
//!
//! The tables are computed by the compiler from the lengths of the codes.

use super::HpackError;

/// The bits of each byte's code; the last is the end of a string, which no string contains.
///
/// The code is canonical: in the order of length, then of the byte, each code is the one before it plus one.
pub(super) const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

/// Appends the decoded string to `out`, which is not complete if it fails.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // No code is shorter than five bits.
    out.reserve(coded.len() * 8 / 5);
    let mut node = 0u8;
    for byte in coded {
        for bits in [byte >> 4, byte & 0xf] {
            let step = STEPS[usize::from(node)][usize::from(bits)];
            match step.end {
                End::None => {}
                End::Byte => out.push(step.byte),
                End::Bad => return Err(HpackError::Huffman),
            }
            node = step.node;
        }
    }
    if PADDING[usize::from(node)] {
        Ok(())
    } else {
        Err(HpackError::Huffman)
    }
}

/// Where four more bits lead from an inner node of the code's tree.
#[derive(Clone, Copy)]
struct Step {
    node: u8,
    byte: u8,
    end: End,
}

/// What ends within a step: one code at most, as none is shorter than a step.
#[derive(Clone, Copy)]
enum End {
    None,
    Byte,
    Bad,
}

/// The inner nodes: one fewer than the leaves.
const NODES: usize = 256;
/// A child from here on is a leaf: this plus its byte. The root, 0, is no child, so 0 is one that is not set yet.
const LEAF: u16 = 256;
const END_OF_STRING: u16 = LEAF + 256;

static STEPS: [[Step; 16]; NODES] = steps();
/// Whether a string may end at a node: after less than a byte of the code's padding, which is all ones.
static PADDING: [bool; NODES] = padding();

const TREE: [[u16; 2]; NODES] = tree();

const fn tree() -> [[u16; 2]; NODES] {
    let mut children = [[0; 2]; NODES];
    let mut nodes = 1;
    let mut code = 0u32;
    let mut bits = 1;
    while bits <= 30 {
        code <<= 1;
        let mut symbol = 0;
        while symbol < BITS.len() {
            if BITS[symbol] == bits {
                let mut node = 0;
                let mut left = bits;
                while left > 1 {
                    left -= 1;
                    let child = &mut children[node][((code >> left) & 1) as usize];
                    if *child == 0 {
                        *child = nodes;
                        nodes += 1;
                    }
                    node = *child as usize;
                }
                children[node][(code & 1) as usize] = LEAF + symbol as u16;
                code += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    assert!(nodes as usize == NODES);
    children
}

const fn steps() -> [[Step; 16]; NODES] {
    const NOWHERE: Step = Step {
        node: 0,
        byte: 0,
        end: End::None,
    };
    let mut steps = [[NOWHERE; 16]; NODES];
    let mut node = 0;
    while node < NODES {
        let mut bits = 0;
        while bits < 16 {
            steps[node][bits] = step(node as u16, bits);
            bits += 1;
        }
        node += 1;
    }
    steps
}

const fn step(mut node: u16, bits: usize) -> Step {
    let mut byte = 0;
    let mut end = End::None;
    let mut left = 4;
    while left > 0 {
        left -= 1;
        node = TREE[node as usize][(bits >> left) & 1];
        if node == END_OF_STRING {
            end = End::Bad;
            node = 0;
        } else if node >= LEAF {
            byte = (node - LEAF) as u8;
            end = End::Byte;
            node = 0;
        }
    }
    Step {
        node: node as u8,
        byte,
        end,
    }
}

const fn padding() -> [bool; NODES] {
    let mut may_end = [false; NODES];
    let mut node = 0;
    let mut ones = 0;
    while ones < 8 {
        may_end[node] = true;
        node = TREE[node][1] as usize;
        ones += 1;
    }
    may_end
}
