# Runs one process to its end, as the only command of a toolbox session. Its directory has then:
# `pid`, `started` or `fail`, the `tag` if it has one, the output in segments (`o.POSITION`, with `i.POSITION` that says which
# stream each piece is of and where it ends), `exit`. FIFOs in it are `t` (the state of the output,
# which one pump at a time holds), `a` (how far readers are), `names` (input that waits).
# Arguments: number, kept bytes, wait|drop, open|empty, seconds or "", directory or "" (with a
# `+` before it, it is made), tag or "", number of variables, variables as NAME=VALUE, program and its
# arguments.
D=$base/p/$1 keep=$2 overflow=$3 input=$4 limit=$5 dir=$6 tag=$7 count=$8
mkdir -p "$D" && mkdir "$D/claim" 2>/dev/null || exit 1
if [ -n "$tag" ]; then echo "$tag" >"$D/tag"; fi
shift 8
mkdir -p "$work"
command_dir "$dir"
when_began $$
echo "$$ $began" >"$D/sup"
mark="issuebox-end-$D"
mark_hex=$(echo "$mark" | od -An -v -tx1 | tr -d ' \n')
mkfifo "$D/out" "$D/err" "$D/t" "$D/a" || exit 1
exec 3<>"$D/out" 4<>"$D/err" 5<>"$D/t" 6<>"$D/a"
echo "0 0 0 0 0" >&5

# Adds the file of a pump, of $2 bytes of stream $1, to the output.
add() {
    read -r next start len acked old <&5
    while [ $overflow = wait ] && [ $((next - acked)) -ge "$keep" ] && [ ! -e "$D/done" ]; do
        read -r given <&6
        if [ "$given" -gt "$acked" ]; then acked=$given; fi
    done
    if [ "$len" = 0 ] || [ $((len + $2)) -gt 65536 ]; then
        start=$next len=0
        mv "$D/c.$1" "$D/o.$((B + start))"
    else
        cat "$D/c.$1" >>"$D/o.$((B + start))"
    fi
    next=$((next + $2)) len=$((len + $2))
    echo "$1 $next" >>"$D/i.$((B + start))"
    floor=$((next - keep))
    if [ $overflow = wait ] && [ $((acked - 262144)) -lt $floor ]; then floor=$((acked - 262144)); fi
    if [ $((floor - old)) -ge 65536 ]; then drop_below $floor; fi
    echo "$next $start $len $acked $old" >&5
    wake
}
# Removes the segments that end at or before a position.
drop_below() {
    before=
    for index in "$D"/i.*; do
        at=${index##*.}
        if [ -n "$before" ]; then
            if [ $((at - B)) -gt "$1" ]; then break; fi
            rm -f "$D/i.$before" "$D/o.$before"
        fi
        before=$at
    done
    old=$((before - B))
}
# Takes what is written to its input as stream $1, up to the mark.
pump() {
    last=
    while [ -z "$last" ]; do
        dd bs=65536 count=1 of="$D/c.$1" 2>/dev/null
        if [ ! -e "$D/c.$1" ]; then return; fi
        len=$(wc -c <"$D/c.$1")
        if [ -e "$D/done" ]; then
            hex=$(od -An -v -tx1 "$D/c.$1" | tr -d ' \n')
            before=${hex%%"$mark_hex"*}
            if [ "$before" != "$hex" ]; then
                last=1 len=$((${#before} / 2))
                if [ $len -gt 0 ]; then
                    dd if="$D/c.$1" of="$D/d.$1" bs=$len count=1 2>/dev/null
                    mv "$D/d.$1" "$D/c.$1"
                fi
            fi
        fi
        if [ $((len)) -gt 0 ]; then add "$1" $((len)); fi
    done
    rm -f "$D/c.$1"
}
# Writes the pieces of input to the process, in the order in which they were named.
feed() {
    exec 9>"$D/stdin"
    while read -r name <&8 && [ "$name" != close ]; do
        cat "$D/in.$name" >&9 2>/dev/null || break
        rm -f "$D/in.$name"
        wake
    done
    exec 9>&-
    : >"$D/closed"
    wake
}
pump 1 <&3 >/dev/null 2>&1 &
pumps=$!
pump 2 <&4 >/dev/null 2>&1 &
pumps="$pumps $!"
stdin=/dev/null
if [ "$input" = open ]; then
    mkfifo "$D/stdin" "$D/names"
    stdin=$D/stdin
    exec 8<>"$D/names"
    feed </dev/null >/dev/null 2>&1 &
    feeder=$!
fi
timer=
if [ -n "$limit" ]; then
    (
        sleeper=
        trap 'kill $sleeper; exit' TERM
        sleep "$limit" &
        sleeper=$!
        wait $sleeper
        : >"$D/timed"
        read -r pid <"$D/pid" && kill_session "$pid"
    ) </dev/null >/dev/null 2>&1 &
    timer=$!
fi
# What becomes the process. It sets no variable, since that would change an exported one.
start='echo $$ >"$1/pid"
if ! cd -- "$2" 2>/dev/null; then echo "dir $2" >"$1/fail"; exit 126; fi
if ! command -v "$3" >/dev/null 2>&1; then
    if [ -e "$3" ]; then echo "exec $3" >"$1/fail"; else echo "none $3" >"$1/fail"; fi
    exit 127
fi
( D=$1; : >"$D/started"
for fifo in "$D"/w.*; do
    taken=$D/v.$$.${fifo##*/}
    if mv "$fifo" "$taken" 2>/dev/null; then echo 1<>"$taken"; rm -f "$taken"; fi
done )
shift 2
exec "$@"'
# The variables come first, then the program.
n=0
for word; do
    if [ $n = 0 ]; then set --; fi
    if [ $n = "$count" ]; then set -- "$@" sh -c "$start" sh "$D" "$dir"; fi
    set -- "$@" "$word"
    n=$((n + 1))
done
if command -v setsid >/dev/null; then
    setsid env "$@" <"$stdin" >"$D/out" 2>"$D/err" 3>&- 4>&- 5>&- 6>&- 8>&-
    code=$?
else
    echo "exec setsid, which this image lacks," >"$D/fail"
fi
: >"$D/done"
echo 0 >&6
echo "$mark" >&3
echo "$mark" >&4
# shellcheck disable=SC2086
wait $pumps
if [ -n "$timer" ]; then kill "$timer"; fi 2>/dev/null
if [ "$input" = open ]; then kill "$feeder"; fi 2>/dev/null
if [ -e "$D/timed" ]; then code="137 1"; else code="$code 0"; fi
echo "$code" >"$D/exit.new"
# What never started is forgotten first.
if [ -e "$D/fail" ]; then
    touch -t 200001010000 "$D/exit.new"
    : >"$D/seen"
fi
mv "$D/exit.new" "$D/exit"
rm -f "$D/in."* "$D/stdin" "$D/names" "$D/out" "$D/err" "$D/t" "$D/a"
wake
# The last 16 that have ended are kept, and up to 64 whose end no reader has seen yet.
# shellcheck disable=SC2012,SC2046
set -- $(ls -tr "$base"/p/*/exit 2>/dev/null)
count=$#
for ended; do
    D=${ended%/exit}
    if [ $count -gt 64 ] || { [ $count -gt 16 ] && [ -e "$D/seen" ]; }; then
        rm -rf "$D"
        count=$((count - 1))
    fi
done
