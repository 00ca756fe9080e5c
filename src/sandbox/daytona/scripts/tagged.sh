# Says which is the newest process with a tag: `tagged`, and its number if there is one. Argument: the
# tag.
found=
for file in "$base"/p/*/tag; do
    tag=
    { read -r tag <"$file"; } 2>/dev/null
    number=${file%/tag}
    number=${number##*/}
    if [ "$tag" = "$1" ] && { [ -z "$found" ] || [ "$number" -gt "$found" ]; }; then
        found=$number
    fi
done
echo "tagged $found"
