# Makes an object ready for work, once it is up: its workspace, our own directory, and nothing in it of
# processes that ended with the object. Says which tool the image lacks.
for tool in base64 chmod dd env find head id mkdir mkfifo mv od readlink rm setsid stat tail tr wc xargs; do
    if ! command -v $tool >/dev/null; then
        echo "!lacks $tool"
        exit
    fi
done
if ! mkdir -p "$work" 2>/dev/null; then
    { sudo -n mkdir -p "$work" && sudo -n chown "$(id -u):$(id -g)" "$work"; } 2>/dev/null
fi
if [ ! -d "$work" ] || [ ! -w "$work" ]; then
    echo "!work $work"
    exit
fi
mkdir -p "$base/p" "$base/tmp" || exit
# Uploads that broke off more than a day ago.
find "$base/tmp" -mindepth 1 -mtime +0 -exec rm -f {} + 2>/dev/null
for D in "$base"/p/*; do
    if [ -e "$D/exit" ] || [ ! -s "$D/sup" ]; then continue; fi
    if ! is_running "$D/sup"; then rm -rf "$D"; fi
done
echo ready
