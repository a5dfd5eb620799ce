//! Sound files: WAV with uncompressed samples (PCM) of 8 or 16 bits. The content of a file is not trusted.
use crate::Kind;
use services::sound::Format;

/// Why a file cannot be played.
pub type Why = &'static str;

/// Most bytes before the samples that are read.
pub const HEAD: usize = 4096;

/// Reads the header. Returns the kind of the samples, where they begin, and how many bytes of them the file claims.
///
/// # Errors
/// A sentence that says why the file cannot be played.
pub fn head(file: &[u8]) -> Result<(Kind, usize, u64), Why> {
    let word = |at: usize| {
        let bytes = file.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let half = |at: usize| {
        let bytes = file.get(at..at.checked_add(2)?)?;
        Some(u64::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    };
    let is = |at: usize, name: &[u8]| file.get(at..at.saturating_add(4)) == Some(name);
    if !is(0, b"RIFF") || !is(8, b"WAVE") {
        return Err("it is no WAV file");
    }
    let mut kind = None;
    let mut at = 12usize;
    loop {
        let size = word(at + 4).ok_or("there are no samples in it, or too much is before them")?;
        let content = at + 8;
        if is(at, b"data") {
            let kind = kind.ok_or("it does not say what its samples are")?;
            return Ok((kind, content, size.into()));
        }
        if is(at, b"fmt ") {
            kind = Some(
                read_kind(&half, &word, content)
                    .ok_or("its samples are not PCM of 8 or 16 bits")?,
            );
        }
        // Pieces begin at even places.
        let next = u64::from(size).next_multiple_of(2) + content as u64;
        at = usize::try_from(next).map_err(|_| "it is too long")?;
        if at > HEAD {
            return Err("there are no samples in it, or too much is before them");
        }
    }
}

fn read_kind(
    half: &impl Fn(usize) -> Option<u64>,
    word: &impl Fn(usize) -> Option<u32>,
    at: usize,
) -> Option<Kind> {
    let (is_pcm, channels) = (half(at)? == 1, half(at + 2)?);
    let format = match half(at + 14)? {
        8 => Format::U8,
        16 => Format::S16,
        _ => return None,
    };
    let kind = Kind {
        rate: word(at + 4)?.into(),
        channels,
        format,
    };
    (is_pcm && channels > 0 && kind.rate > 0).then_some(kind)
}

/// Converts samples of 8 bits to 16 bits.
pub fn widen(samples: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let wide = |sample: &u8| ((i16::from(*sample) - 128) << 8).to_le_bytes();
    samples.iter().flat_map(wide)
}
