# What every install and run_endpoint has in common; sourced by them.
# Exit 0: done. 1: failed. 127: not to be had here, or a knob that the stack does not have.

not_to_be_had() {
    echo "$*" >&2
    exit 127
}

# needs PROGRAM REMEDY: a program that the installation takes from the system.
needs() {
    command -v "$1" >/dev/null || not_to_be_had "$1 is not installed: $2"
}

# honours KNOB...: refuses every other knob that is set.
honours() {
    for knob in CC IW ACK_THRESH MAX_DATA MAX_STREAM_DATA SEND_BUFFER; do
        case " $* " in *" $knob "*) continue ;; esac
        eval "value=\${$knob:-}"
        [ -z "$value" ] || not_to_be_had "$knob=$value: this stack has no such knob"
    done
}

# cargo_install PROGRAM: builds the wrapper beside `install` with its lock file and keeps its program.
cargo_install() {
    needs cargo "install Rust"
    CARGO_TARGET_DIR=$BUILD cargo build --release --locked >&2
    cp "$BUILD/release/$1" "$STACK/$1.part"
    mv "$STACK/$1.part" "$STACK/$1"
}

# python_install REQUIREMENTS: an environment of its own, every file checked by hash.
python_install() {
    needs python3 "apt-get install python3-venv"
    python3 -m venv --clear "$STACK/venv"
    "$STACK/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$1" >&2
}
