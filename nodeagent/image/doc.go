// Package image is a store of container images, and of archives, on one machine, by
// their content.
//
// In: references by digest, registries, mirrors, limits. Out: for each image the
// directories that overlayfs merges, and what the image says of how it is run.
//
// Ensure pulls an image: its layers at the same time, each verified while it comes
// (the digest of what the registry has, and that of the tar), decompressed and
// unpacked without a copy in between. A pull that broke goes on where it was, from the
// next mirror if need be, and what was unpacked of whole layers is used by the next one.
//
// Tags asks registries what tags stand for, for who writes references by digest; no
// machine does.
//
// On the disk, below Config.Dir:
//
//	layers/DIFF/          a layer that is the same in each image, by the digest of its tar
//	layers/chain-CHAIN/   one that depends on those below it, by the digest of all of them
//	layers/archive-SUM/   an archive, by the digest of its file
//	  fs/                 its directory, for overlayfs
//	  layer.json          its document, with a checksum
//	images/DIGEST.json    an image or an archive: its layers and settings; its mtime is its last use
//	unpacking/            what is not whole: removed by Open
//	trash/                what is being removed
//
// A layer is unpacked into unpacking/, synced to the disk with its document, and
// renamed: what has a name below layers/ is whole, after kill -9 and after a power
// loss. An image's record is written after all of its layers.
//
// A layer depends on those below it in three cases: it has a file without an entry for
// its directory, which then has the owner, mode, times and extended attributes that
// lower layers say; a hard link to a file that it does not have itself, which then is
// one to the file of the lower layer; or it removes something, of which overlayfs would
// list the name if no lower layer had it. Such layers are shared only by images that
// have the same layers below. A directory without an entry hides a symbolic link of a
// lower layer, as overlayfs does.
//
// Layers are unpacked in the form of overlayfs: .wh.NAME becomes the device 0:0,
// .wh..wh..opq the attribute trusted.overlay.opaque, of a whole layer the end of the
// list of layers. What one layer both has and removes, it has, and it hides what is below.
// Later entries replace earlier ones. Which extended attributes are kept is said at
// xattrs. No name leads out of the directory: no link is ever followed by the kernel,
// those inside are resolved with the layer's root as /, and names with .. are refused.
//
// All methods may be called from any goroutine; one process at a time has a store. It
// must never give out what is not whole and verified, and never send the credentials of
// one host to another.
package image
