# Walks through a directory, and unpacks an archive. Arguments: operation, and what it needs.
case $1 in
spool)
    # upload
    mkdir -p "$base/tmp"
    printf %s "$base/tmp/$2" | base64
    ;;
walk)
    # path. Prints where the directory is, what `stat` says of each entry, the targets of links, and what
    # cannot be read.
    text "$2"
    enter "$value"
    if [ -n "$name" ]; then
        follow
        if [ ! -d "$at" ]; then refuse kind it is not a directory; fi
        cd -P -- "$at" 2>/dev/null || refuse refused permission denied
    fi
    printf %s "$PWD" | base64
    echo :
    # Not every `stat` has fractions of a second.
    time=%.9Y
    case $(stat -c $time . 2>/dev/null) in *.?????????) ;; *) time=%Y ;; esac
    # No path that `find` prints has two slashes in a row.
    find . -mindepth 1 -print0 2>/dev/null | xargs -0 stat -c "%f %s $time %n//" 2>/dev/null
    printf '\0'
    find . -type l -exec sh -c 'for link; do
        if to=$(readlink -- "$link" && echo _); then
            to=${to%_}
            printf "%s\0%s\0" "$link" "${to%?}"
        fi
    done' sh {} + 2>/dev/null
    printf '\0'
    find . \( -type f -o -type d \) -exec sh -c 'for entry; do
        if [ ! -r "$entry" ] || { [ -d "$entry" ] && [ ! -x "$entry" ]; }; then printf "%s\0" "$entry"; fi
    done' sh {} + 2>/dev/null
    ;;
unpack)
    # path, upload; beside the upload is the list of its entries
    command -v tar >/dev/null || refuse refused this image lacks tar
    text "$2"
    enter "$value" make
    if [ -n "$name" ]; then
        if [ ! -e "./$name" ] && [ ! -L "./$name" ]; then
            mkdir -- "./$name" 2>/dev/null || refuse refused cannot make a directory
        fi
        follow
        if [ ! -d "$at" ]; then refuse kind it is not a directory; fi
        cd -P -- "$at" 2>/dev/null || refuse refused permission denied
    fi
    archive=$base/tmp/$3
    wrong=$(xargs -0 sh -c 'for entry; do
        name=./${entry#?}
        case $entry in
        d*)
            if [ -L "$name" ]; then
                word=path why="it leads through a link that is not followed"
            elif [ -e "$name" ] && [ ! -d "$name" ]; then
                word=kind why="it is not a directory"
            else
                continue
            fi
            ;;
        *)
            if [ -L "$name" ] || [ ! -d "$name" ]; then continue; fi
            word=kind why="it is a directory"
            ;;
        esac
        printf "!%s %s//%s" "$word" "$why" "${entry#?}"
        exit 255
    done' sh <"$archive.names" 2>/dev/null)
    if [ -n "$wrong" ]; then
        printf %s "$wrong"
        exit
    fi
    # Links that lead out of the directory stay as they are written.
    if ! EXTRACT_UNSAFE_SYMLINKS=1 tar -xpof "$archive" 2>"$archive.words"; then
        refuse refused "$(tail -n 1 "$archive.words")"
    fi
    echo unpacked
    ;;
discard)
    # upload
    rm -f "$base/tmp/$2" "$base/tmp/$2.names" "$base/tmp/$2.words"
    echo discarded
    ;;
esac
