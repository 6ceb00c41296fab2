package repofiles

// ReplaceWith is Replace with another os.Rename.
func ReplaceWith(dir string, files map[string][]byte, rename func(from, to string) error) error {
	return replaceAll(dir, files, nil, rename)
}
