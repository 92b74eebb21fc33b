//! Frames, byte by byte: `docs/reference/agent-protocol.md`.

use proptest::prelude::*;
use storlab_agent::protocol::{
    DecodeError, Decoder, EncodeError, Event, Failure, MAX_FRAME, MAX_GREETING, PREFACE, encode, encode_event,
};

const CHUNK: usize = 65_536;

type Owned = (Vec<u8>, Vec<u8>);

/// Pushes the stream in chunks of these sizes, over and over.
fn decode(stream: &[u8], chunks: &[usize]) -> (Vec<Owned>, Option<DecodeError>, usize) {
    let (mut decoder, mut frames, mut peak, mut rest) = (Decoder::default(), Vec::new(), 0, stream);
    for &size in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, tail) = rest.split_at(size.clamp(1, rest.len()));
        rest = tail;
        decoder.push(chunk);
        peak = peak.max(decoder.capacity());
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push((frame.header.to_vec(), frame.payload.to_vec())),
                Ok(None) => break,
                Err(error) => return (frames, Some(error), peak),
            }
        }
    }
    (frames, None, peak)
}

fn stream_of(frames: &[Owned]) -> Vec<u8> {
    let mut stream = PREFACE.to_vec();
    for (header, payload) in frames {
        encode(&mut stream, header, payload).unwrap();
    }
    stream
}

fn frames() -> impl Strategy<Value = Vec<Owned>> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop::collection::vec((bytes(300), bytes(3000)), 0..20)
}

proptest! {
    #[test]
    fn any_chunking_of_a_stream_decodes_to_the_same_frames(
        frames in frames(),
        greeting in prop::collection::vec(any::<u8>(), 0..1000),
        chunks in prop::collection::vec(1_usize..5000, 1..20),
    ) {
        let stream = [greeting, stream_of(&frames)].concat();
        let (decoded, error, _) = decode(&stream, &chunks);
        prop_assert_eq!(decoded, frames);
        prop_assert_eq!(error, None);
    }

    #[test]
    fn random_bytes_neither_panic_nor_take_more_memory_than_a_frame(
        noise in prop::collection::vec(any::<u8>(), 0..100_000),
        chunks in prop::collection::vec(1_usize..CHUNK, 1..20),
        greet in any::<bool>(),
    ) {
        let stream = if greet { [PREFACE.to_vec(), noise].concat() } else { noise };
        let (_, _, peak) = decode(&stream, &chunks);
        prop_assert!(peak <= MAX_FRAME + 4 + CHUNK, "{} bytes", peak);
    }

    #[test]
    fn a_stream_with_one_changed_byte_never_panics(
        frames in frames(),
        position in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut stream = stream_of(&frames);
        let position = position.index(stream.len());
        stream[position] = value;
        decode(&stream, &[CHUNK]);
    }
}

#[test]
fn the_greatest_frame_takes_no_more_memory_than_itself_and_a_chunk() {
    let frame = (b"{}".to_vec(), vec![7; MAX_FRAME - 4]);
    let (decoded, error, peak) = decode(&stream_of(&[frame.clone(), frame.clone()]), &[CHUNK]);
    assert!(decoded == [frame.clone(), frame] && error.is_none());
    assert!(peak <= MAX_FRAME + 4 + CHUNK, "{peak} bytes");
}

#[test]
fn an_impossible_length_is_refused_before_its_bytes_come() {
    for (length, expected) in [
        (0_u32, DecodeError::FrameLength(0)),
        (1, DecodeError::FrameLength(1)),
        (2_097_153, DecodeError::FrameLength(2_097_153)),
        (u32::MAX, DecodeError::FrameLength(u32::MAX as usize)),
    ] {
        let stream = [PREFACE.as_slice(), &length.to_be_bytes()].concat();
        let (_, error, peak) = decode(&stream, &[CHUNK]);
        assert_eq!(error, Some(expected));
        assert!(peak < CHUNK);
    }
}

#[test]
fn a_header_longer_than_its_frame_is_refused() {
    let stream = [PREFACE.as_slice(), &10_u32.to_be_bytes(), &9_u16.to_be_bytes()].concat();
    assert_eq!(decode(&stream, &[1]).1, Some(DecodeError::HeaderLength { header: 9, frame: 10 }));
}

#[test]
fn what_comes_before_the_preface_is_skipped_up_to_its_limit() {
    let frame = (b"{}".to_vec(), Vec::new());
    let stream = [vec![b's'; MAX_GREETING], stream_of(std::slice::from_ref(&frame))].concat();
    assert_eq!(decode(&stream, &[1000]), (vec![frame], None, decode(&stream, &[1000]).2));
    let stream = [vec![b's'; MAX_GREETING + 1], PREFACE.to_vec()].concat();
    assert_eq!(decode(&stream, &[1000]).1, Some(DecodeError::NoPreface));
}

#[test]
fn a_preface_that_breaks_off_and_begins_anew_is_found() {
    let stream =
        [b"login: storlab-agestorlab-agent/".as_slice(), &stream_of(&[(b"{}".to_vec(), vec![1])])].concat();
    assert_eq!(decode(&stream, &[3]).0, [(b"{}".to_vec(), vec![1])]);
}

#[test]
fn a_frame_that_is_too_long_is_not_begun() {
    let mut out = Vec::new();
    assert_eq!(encode(&mut out, &[b' '; 65_536], &[]), Err(EncodeError::Header(65_536)));
    assert_eq!(encode(&mut out, b"{}", &vec![0; MAX_FRAME - 3]), Err(EncodeError::Frame(MAX_FRAME + 1)));
    assert!(out.is_empty());
}

#[test]
fn an_event_that_fits_into_no_frame_goes_out_as_an_error() {
    let mut out = PREFACE.to_vec();
    encode_event(&mut out, 7, &Event::Data, &vec![0; MAX_FRAME]);
    let (frames, _, _) = decode(&out, &[CHUNK]);
    let header: serde_json::Value = serde_json::from_slice(&frames[0].0).unwrap();
    assert_eq!((&header["id"], &header["event"]), (&7.into(), &"error".into()));
}

#[test]
fn frames_look_as_they_always_did() {
    let mut out = PREFACE.to_vec();
    encode_event(&mut out, 1, &Event::Clock { monotonic_ns: 5, realtime_ns: 1_700_000_000_000_000_000 }, &[]);
    encode_event(&mut out, 2, &Event::Started { pid: 42, cgroup: None, confined: None }, &[]);
    encode_event(&mut out, 2, &Event::Stdout { monotonic_ns: 7 }, b"hello\n");
    encode_event(&mut out, 3, &Event::done(), &[]);
    encode_event(&mut out, 4, &Event::done_size(262_144), &[]);
    encode_event(&mut out, 5, &Event::done_ticks(3), &[]);
    let sizes = vec![2, -1];
    encode_event(&mut out, 5, &Event::Sample { monotonic_ns: 1, realtime_ns: 2, late_ns: 3, sizes }, b"ab");
    encode_event(
        &mut out,
        6,
        &Event::Error(Failure::errno("can't read \"/x\"", nix::errno::Errno::ENOENT)),
        &[],
    );
    encode_event(&mut out, 7, &Event::Error(Failure::new("no")), &[]);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/events.bin");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, &out).unwrap();
    }
    assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&std::fs::read(golden).unwrap()));
}
