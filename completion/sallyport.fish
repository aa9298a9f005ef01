# fish completion of sallyport. All candidates come from `sallyport complete`.
function __sallyport_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    $words[1] complete fish -- $words[2..-1] "$word" 2>/dev/null
end
complete -c sallyport -f -a '(__sallyport_complete)'
