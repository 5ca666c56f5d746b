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

# needs_header FILE PACKAGE: a header of C that the installation takes from the system.
needs_header() {
    [ -e "/usr/include/$1" ] || not_to_be_had "$1 is missing: apt-get install $2"
}

# keep PROGRAM [NAME]: puts what was built into $STACK, where it is whole or not at all.
keep() {
    cp "$1" "$STACK/program.part"
    mv "$STACK/program.part" "$STACK/${2:-${1##*/}}"
}

# only WORD...: refuses every other role and application protocol.
only() {
    for word in "$ROLE" "$PROTOCOL"; do
        case " $* " in *" $word "*) continue ;; esac
        not_to_be_had "$ROLE, $PROTOCOL: this stack is $* here"
    done
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
    keep "$BUILD/release/$1"
}

# go_install: builds the wrapper beside `install`, by the sums of its modules.
go_install() {
    needs go "install Go 1.26 or newer"
    CGO_ENABLED=0 go build -trimpath -mod=readonly -o "$STACK/endpoint" . >&2
}

# python_install REQUIREMENTS: an environment of its own, every file checked by hash.
python_install() {
    needs python3 "apt-get install python3-venv"
    python3 -m venv --clear "$STACK/venv"
    "$STACK/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$1" >&2
}

# debian_source SUITE PACKAGE: fetches the source of a package of another release of Debian into $BUILD, from where this
# system gets its own packages, checks what source.sha256 names, and unpacks it there. Of the package only what its authors
# have released is fetched: files of the newest revision by Debian are not on every mirror.
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
        apt-get "$@" update >&2 && apt-get "$@" source --download-only --tar-only "$package" >&2 || exit 127
        sha256sum --quiet --check "$here/source.sha256" >&2
        tar -xf "$(cut -d ' ' -f 3 "$here/source.sha256")"
    )
}

# image_install REFERENCE: the file system of an image that was made for the QUIC interop runner, by podman or docker,
# which is needed for nothing else. What the images do to the runner's network is left out: ours stands.
image_install() {
    engine=$(command -v podman || command -v docker) || not_to_be_had "neither podman nor docker is installed"
    "$engine" pull "$1" >&2 || not_to_be_had "$engine cannot pull $1"
    container=$("$engine" create "$1")
    rm -rf "$STACK/image"
    mkdir "$STACK/image"
    "$engine" export "$container" | tar -x -C "$STACK/image" --exclude='dev/*'
    "$engine" inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$container" >"$STACK/environment"
    "$engine" rm "$container" >&2
    [ -x "$STACK/image/run_endpoint.sh" ] || not_to_be_had "$1 has no /run_endpoint.sh: it was not made for the interop runner"
    for script in setup.sh wait-for-it.sh; do
        rm -f "$STACK/image/$script"
        printf '#!/bin/sh\n' >"$STACK/image/$script"
        chmod +x "$STACK/image/$script"
    done
}

# server_of_requests: sets $host and $port to where the first of $REQUESTS leads.
server_of_requests() {
    host=${REQUESTS#https://}
    host=${host%%/*}
    port=443
    case $host in *:*) port=${host##*:} host=${host%:*} ;; esac
}

# www_by_http1: serves /www to a proxy on this machine, port 8080.
www_by_http1() {
    python3 -m http.server --bind 127.0.0.1 --directory /www --protocol HTTP/1.1 8080 2>/dev/null &
}

# image_run: becomes the image's endpoint, with the fixed paths in its file system.
image_run() {
    honours
    for place in www certs downloads logs proc dev tmp etc; do mkdir -p "$STACK/image/$place"; done
    for place in www certs downloads logs; do mount --bind "/$place" "$STACK/image/$place"; done
    mount -t proc proc "$STACK/image/proc"
    mount --rbind /dev "$STACK/image/dev"
    mount -t tmpfs -o size=512m,mode=1777 tmp "$STACK/image/tmp"
    for file in hosts resolv.conf; do
        rm -f "$STACK/image/etc/$file"
        cat "/etc/$file" >"$STACK/image/etc/$file"
    done
    change_root=$(command -v chroot)
    while IFS= read -r setting; do
        [ -z "$setting" ] || export "${setting?}"
    done <"$STACK/environment"
    exec "$change_root" "$STACK/image" /run_endpoint.sh
}
