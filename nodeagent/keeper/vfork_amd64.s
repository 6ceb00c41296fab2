#include "textflag.h"

// func vfork(number, first, second uintptr, e unsafe.Pointer) (result uintptr)
TEXT ·vfork(SB), NOSPLIT, $0-40
	MOVQ number+0(FP), AX
	MOVQ first+8(FP), DI
	MOVQ second+16(FP), SI
	MOVQ e+24(FP), R12 // which the kernel keeps
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYSCALL
	TESTQ AX, AX
	JEQ  child
	MOVQ AX, result+32(FP)
	RET

child:
	// On its own stack, which begins here. The call is by a register: what it takes is none of the
	// caller's stack, which the linker would add.
	MOVQ R12, AX
	PUSHQ $0
	PUSHQ AX
	LEAQ ·goOn(SB), R13
	CALL R13
	INT  $3
