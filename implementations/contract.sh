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

# debian_source SUITE PACKAGE: fetches the source of a package of another release of Debian into $BUILD, from where this
# system gets its own packages, checks what source.sha256 names, and unpacks it there.
debian_source() {
    needs apt-get "this is no Debian"
    site=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' | grep '/debian$' | head -n 1)
    [ -n "$site" ] || not_to_be_had "apt knows no site of Debian"
    apt=$BUILD/apt
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $1 main" >"$apt/sources.list"
    set -- "$2" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache"
    package=$1
    shift
    here=$PWD
    (
        cd "$BUILD"
        apt-get "$@" update >&2 && apt-get "$@" source --download-only "$package" >&2 || exit 127
        sha256sum --quiet --check "$here/source.sha256" >&2
        tar -xf "$(cut -d ' ' -f 3 "$here/source.sha256")"
    )
}
