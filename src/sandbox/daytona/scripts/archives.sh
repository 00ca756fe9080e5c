# Walks through a directory, and unpacks an archive. Arguments: operation, and what it needs.
case $1 in
spool)
    # upload
    mkdir -p "$base/tmp"
    printf %s "$base/tmp/$2" | base64
    ;;
walk)
    # path, name for what it writes down. Prints where the directory is, what `stat` says of each entry, the
    # targets of links, what cannot be read, and `whole`: a helper that was killed must not look like a
    # small directory.
    text "$2"
    enter "$value"
    if [ -n "$name" ]; then
        follow
        if [ ! -d "$at" ]; then refuse kind it is not a directory; fi
        cd -P -- "$at" 2>/dev/null || refuse refused permission denied
    fi
    mkdir -p "$base/tmp"
    names=$base/tmp/$3
    export LC_ALL=C
    printf %s "$PWD" | base64
    echo :
    # Not every `stat` has fractions of a second.
    time=%.9Y
    case $(stat -c $time . 2>/dev/null) in *.?????????) ;; *) time=%Y ;; esac
    # Writes down what `find` finds. It answers 1 for a directory that it cannot read.
    found() {
        find . "$@" -print0 >"$names" 2>/dev/null
        [ $? -le 1 ]
    }
    # No path that `find` prints has two slashes in a row. `xargs` answers 123 if a file is gone.
    facts() {
        xargs -0 stat -c "%f %s $time %n//" -- <"$names" 2>/dev/null
        case $? in 0 | 123) ;; *) return 1 ;; esac
    }
    targets='for link; do
        if to=$(readlink -- "$link" && echo _); then
            to=${to%_}
            printf "%s\0%s\0" "$link" "${to%?}"
        fi
    done
    exit 0'
    # Below a directory with a long path are paths that the system does not take.
    unreadable='for entry; do
        if [ ! -r "$entry" ] || { [ -d "$entry" ] && { [ ! -x "$entry" ] || [ ${#entry} -gt 3800 ]; }; }; then
            printf "%s\0" "$entry"
        fi
    done
    exit 0'
    found -mindepth 1 && facts && printf '\0' &&
        found -type l && xargs -0 sh -c "$targets" sh <"$names" 2>/dev/null && printf '\0' &&
        found \( -type f -o -type d \) && xargs -0 sh -c "$unreadable" sh <"$names" 2>/dev/null &&
        printf '\0whole'
    rm -f "$names"
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
        h*)
            # The target of a hard link, if the archive does not make it.
            if [ -f "$name" ] && [ ! -L "$name" ]; then continue; fi
            word=kind why="a hard link to it: that is not a regular file"
            ;;
        *)
            if [ -L "$name" ] || [ ! -d "$name" ]; then continue; fi
            word=kind why="it is a directory"
            ;;
        esac
        printf "!%s %s//%s" "$word" "$why" "${entry#?}"
        exit 255
    done' sh <"$archive.names" 2>/dev/null && echo fine)
    case $wrong in
    fine) ;;
    !*)
        printf %s "$wrong"
        exit
        ;;
    *) refuse refused the archive could not be checked ;;
    esac
    # Links that lead out of the directory stay as they are written.
    if ! EXTRACT_UNSAFE_SYMLINKS=1 tar -xpof "$archive" 2>"$archive.words"; then
        # The last line of GNU's is that it failed.
        why='tar failed'
        while read -r line; do
            case $line in *'Exiting with failure'*) ;; *) why=$line ;; esac
        done <"$archive.words"
        refuse refused "$why"
    fi
    echo unpacked
    ;;
discard)
    # upload
    rm -f "$base/tmp/$2" "$base/tmp/$2.names" "$base/tmp/$2.words"
    echo discarded
    ;;
esac
